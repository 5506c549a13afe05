"""What does one model file say, once defaults and overrides are laid over it?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import nearest
from penstock.project.files import ModelFile
from penstock.project.keys import values
from penstock.project.keys.keys import BY_NAME, REQUIRED, TYPES, keys_of
from penstock.project.keys.settings import Settings
from penstock.project.keys.shapes import IDENTIFIER, IDENTIFIER_RULE
from penstock.project.reading.documents import Node, Scalar, Table, merged
from penstock.project.reading.limits import cut
from penstock.project.reading.problems import Problems, Where, did_you_mean
from penstock.values.models import ModelType

NOT_YET = "is not built yet in this release"
_LATER_VALUES = (("manage", "user"), ("on_schema_change", "rebuild"))
_SIGNS: tuple[tuple[str, ModelType], ...] = (("interval", "interval"), ("schedule", "full"), ("target_lag", "dynamic"))
_OF_DBT = {
    "materialized": ": Penstock has no materializations; see interval and target_lag in docs/projects.md",
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A model whose keys are checked one by one, but not yet against each other and the other models."""

    file: ModelFile
    name: str
    type: ModelType
    keys: Table
    enabled: bool
    typed: Table
    """The keys before `${NAME}` was read from the environment."""
    sound: bool
    """False: something about it is already reported, so that what follows from it is not."""

    @property
    def where(self) -> Where:
        return Where(self.file.file, self.keys.where.line)

    @property
    def database(self) -> str:
        return self.name.split(".")[0]

    def at(self, key: str) -> Where:
        """Where `key` stands, in this file or in an override."""
        return self.keys.lines.get(key, self.where)


def draft(file: ModelFile, settings: Settings, environ: Mapping[str, str], problems: Problems) -> Draft | None:
    """The model in `file`; None when it has no name."""
    before = problems.count
    own = _one_spelling(file.keys, problems)
    name = _name(file, own, settings, problems)
    if name is None:
        return None
    override = values.table(settings.overrides.get(name))
    if override is not None:
        own = _over(own, _one_spelling(override, problems))
        name = _name(file, own, settings, problems) or name
    kind = _type(file, own)
    enabled = values.flag(own.get("enabled"), True)
    if not file.readable:
        return Draft(file, name, kind, own, enabled, own, sound=False)
    keys = typed = _checked(_with_defaults(own, settings.defaults, kind), kind, problems)
    _check_type(file, own, kind, problems)
    if enabled:
        keys = _expanded(keys, environ, problems)
        _refuse_unbuilt(file, name, kind, keys, problems)
    return Draft(file, name, kind, keys, enabled, typed, sound=problems.count == before)


def _one_spelling(keys: Table, problems: Problems) -> Table:
    """`keys` with every accepted spelling turned into the one we use."""

    def moved(table: Table, old: str, new: str, node: Node) -> Table:
        if new in table.entries:
            problems.add(table.at(old), f"{old} and {new} say the same; keep one")
            return table.without(old)
        where = table.at(old)
        return table.without(old).having(new, node, where)

    if (position := keys.get("partition")) is not None:
        keys = moved(keys, "partition", "position", position)
    if isinstance(cache := keys.get("cache"), Table):
        renamed = {"incremental_scan_interval": "incremental", "full_scan_interval": "full"}
        entries = {renamed.get(key, key): node for key, node in cache.entries.items()}
        lines = {renamed.get(key, key): where for key, where in cache.lines.items()}
        keys = moved(keys, "cache", "scan", Table(entries, lines, cache.where))
    if isinstance(ttl := keys.get("ttl"), Scalar):
        both = Table({"incremental": ttl, "full": ttl}, {"incremental": ttl.where, "full": ttl.where}, ttl.where)
        keys = moved(keys, "ttl", "scan", both)
    interval = keys.get("interval")
    if isinstance(interval, Table) and (axis := interval.get("type")) is not None:
        if "axis" in keys.entries:
            problems.add(interval.at("type"), "interval.type and axis say the same; keep one")
        else:
            keys = keys.having("axis", axis, interval.at("type"))
        keys = keys.having("interval", interval.without("type"), keys.at("interval"))
    return keys


def _over(own: Table, override: Table) -> Table:
    below, above = own.get("interval"), override.get("interval")
    if isinstance(below, Scalar) and isinstance(above, Table) and "max" not in above.entries:
        own = own.having("interval", Table({"max": below}, {"max": below.where}, below.where), own.at("interval"))
    both = merged(own, override)
    return both if isinstance(both, Table) else own


def _with_defaults(own: Table, defaults: Table, kind: ModelType) -> Table:
    unfit = [key for key in defaults.entries if key in BY_NAME and kind not in BY_NAME[key].types]
    both = merged(defaults.without(*unfit), own)
    return Table(both.entries, both.lines, own.where) if isinstance(both, Table) else own


def _name(file: ModelFile, keys: Table, settings: Settings, problems: Problems) -> str | None:
    database = values.typed(keys.get("database")) or settings.databases.get(file.kind)
    table = values.typed(keys.get("table")) or file.stem
    if database is None:
        said = f"the model {table!r} has no database: write `database:`"
        problems.add(Where(file.file, 1), f"{said}, or set databases.{file.kind} in penstock.yml")
        return None
    for key, part in (("database", database), ("table", table)):
        if not re.fullmatch(IDENTIFIER, part):
            hint = f"write `{key}:`" if key not in keys.entries else None
            problems.add(
                keys.at(key) if key in keys.entries else Where(file.file, 1),
                f"{cut(part)!r} cannot be the name of a {key}: {IDENTIFIER_RULE}",
                hint,
            )
            return None
    return f"{database}.{table}"


def _type(file: ModelFile, keys: Table) -> ModelType:
    """What the keys make of it; a misspelt key counts as the one it is nearest to."""
    if file.kind == "external":
        return "source"
    written = values.typed(keys.get("type"))
    for kind in TYPES:
        if kind == written and kind != "source":
            return kind
    meant = {key if key in BY_NAME else nearest(key, BY_NAME) for key in keys.entries}
    return next((kind for sign, kind in _SIGNS if sign in meant), "dynamic")


def _check_type(file: ModelFile, keys: Table, kind: ModelType, problems: Problems) -> None:
    written = values.typed(keys.get("type"))
    if written in TYPES and written != kind:
        place = "external" if kind == "source" else "transformation"
        problems.add(keys.at("type"), f"the type is {kind}, not {written}: the file lies under the {place} models")
    external = keys.get("external")
    if external is not None and values.flag(external, kind == "source") != (kind == "source"):
        said = "it lies under the external models" if kind == "source" else "it lies under the transformations"
        problems.add(keys.at("external"), f"external: {values.typed(external)} disagrees with the folder: {said}")
    if file.kind == "external" and file.ending == ".py":
        problems.add(Where(file.file, 1), "a source is a .yml or .sql file")


def _checked(keys: Table, kind: ModelType, problems: Problems) -> Table:
    """The keys that fit the type, without their wrong parts."""
    fitting = {key.name: key for key in keys_of(kind)}
    entries: dict[str, Node] = {}
    meant: set[str | None] = set()
    for name, node in keys.entries.items():
        if name in fitting:
            cleaned = fitting[name].shape.clean(node, name, problems)
            if cleaned is not None:
                entries[name] = cleaned
        elif name in BY_NAME:
            types = " and ".join(type_name for type_name in TYPES if type_name in BY_NAME[name].types)
            problems.add(keys.at(name), f"{name!r} is a key of {types} models; this model is {_because(kind, keys)}")
        else:
            near = _OF_DBT.get(name) or did_you_mean(name, fitting) or did_you_mean(name, BY_NAME)
            meant.add(nearest(name, BY_NAME))
            problems.add(keys.at(name), f"there is no key {name!r}{near or f' for {kind} models'}")
    for name in REQUIRED[kind]:
        if name not in keys.entries and name not in meant:
            problems.add(keys.where, f"a model of type {kind} needs the key {name!r}")
    return Table(entries, {name: keys.lines[name] for name in entries}, keys.where)


def _expanded(keys: Table, environ: Mapping[str, str], problems: Problems) -> Table:
    """`keys` with `${NAME}` in `location` and `env` read from the environment."""

    def expanded(node: Node) -> Node:
        if isinstance(node, Table):
            return Table({key: expanded(item) for key, item in node.entries.items()}, node.lines, node.where)
        if not isinstance(node, Scalar):
            return node
        try:
            text = values.expanded(node.raw, environ)
        except values.MissingVariableError as error:
            problems.add(node.where, str(error), f"set {error.name}")
            text = node.raw
        return Scalar(text, text, node.where)

    for key in ("location", "env"):
        if (node := keys.get(key)) is not None:
            keys = keys.having(key, expanded(node), keys.at(key))
    return keys


def _because(kind: ModelType, keys: Table) -> str:
    if kind != "source" and "type" in keys.entries:
        return f"of type {kind}, as `type:` says"
    match kind:
        case "source":
            return "a source, as it lies under the external models"
        case "interval":
            return "of type interval, as it has `interval`"
        case "dynamic":
            return "of type dynamic, as it has no `interval` and no `schedule`"
        case "full":
            return "of type full, as it has `schedule` and no `interval`"


def _refuse_unbuilt(file: ModelFile, name: str, kind: ModelType, keys: Table, problems: Problems) -> None:
    """One clear error for what is known but not there yet."""
    later = [] if kind == "source" else _later_model(file, keys)
    if later:
        where, what = later[0]
        problems.add(where, f"{name}: {what} {NOT_YET}")


def _later_model(file: ModelFile, keys: Table) -> list[tuple[Where, str]]:
    later: list[tuple[Where, str]] = []
    if file.ending == ".py":
        later.append((Where(file.file, 1), "a Python model"))
    elif file.ending != ".sql" or "exec" in keys.entries:
        later.append((keys.at("exec"), "a model made by a script"))
    if values.flag(keys.get("live"), False):
        later.append((keys.at("live"), "live: true"))
    for key, value in _LATER_VALUES:
        if values.typed(keys.get(key)) == value:
            later.append((keys.at(key), f"{key}: {value}"))
    return later
