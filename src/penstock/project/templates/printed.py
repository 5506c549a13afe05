"""Which names of a template do nothing but stand in its text?"""

from __future__ import annotations

from collections import Counter

from jinja2 import nodes

_KEPT: tuple[type[nodes.Node], ...] = (nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.FilterBlock)
"""Where what is printed may be looked at again."""


def only_printed(tree: nodes.Template) -> frozenset[str]:
    """Names that stand as `{{ name.member }}`, a whole number added or not, or as `{{ name('…') }}`, and nowhere else.

    The text depends on them in these places alone: no branch, loop or filter does.
    """
    if next(iter(tree.find_all(_KEPT)), None) is not None:
        return frozenset()
    total = Counter(node.name for node in tree.find_all(nodes.Name))
    shown = [child for output in tree.find_all(nodes.Output) for child in output.nodes]
    printed = Counter(name for node in shown if (name := _printed(node)) is not None)
    return frozenset(name for name, count in printed.items() if count == total[name])


def _printed(node: nodes.Node) -> str | None:
    if (
        isinstance(node, nodes.Add | nodes.Sub)
        and isinstance(node.right, nodes.Const)
        and type(node.right.value) is int
    ):
        node = node.left
    match node:
        case nodes.Getattr(node=nodes.Name(name=str(name))):
            return name
        case nodes.Call(node=nodes.Name(name=str(name)), dyn_args=None, dyn_kwargs=None):
            arguments = (*node.args, *(argument.value for argument in node.kwargs))
            return name if all(isinstance(argument, nodes.Const) for argument in arguments) else None
        case _:
            return None
