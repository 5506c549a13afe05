"""Queries drawn by chance over two positioned inputs, `{a}` and `{b}`, and a lookup, `{l}`.

Each gives the columns p, k and x, so that any can stand where a table can. `{start}` and `{end}` are the edges of the
chunk.
"""

from __future__ import annotations

from random import Random

JOINS = ("join", "left join", "right join", "full join", "left semi join", "left anti join", "cross join", ",")

KEEPING = JOINS[:4]


class Author:
    """Writes queries."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._names = 0

    def query(self, depth: int = 2) -> str:
        forms = (self._plain, self._grouped, self._windowed, self._joined, self._set, self._named, self._spread)
        if self._random.random() < 0.1:
            return self.chain(depth - 1)
        return self._random.choice(forms)(depth)

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _relation(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.4:
            return self._random.choice(("{a}", "{a}", "{b}"))
        return f"({self.query(depth - 1)})"

    def _where(self, name: str) -> str:
        conditions = (
            "",
            f" where {name}.x % 3 <> 0",
            f" where {name}.k is not null and {name}.p >= {{start}}",
            f" where {name}.p between {{start}} - 3 and {{end}} + 2",
            f" where {name}.k in (select k from {{l}})",
            f" where exists (select 1 from {{l}} z where z.k = {name}.k)",
            f" where {name}.x > (select min(y) from {{l}})",
        )
        return self._random.choice(conditions)

    def _plain(self, depth: int) -> str:
        name = self._name()
        columns = self._random.choice(
            (
                "*",
                f"{name}.*",
                f"{name}.p, {name}.k, {name}.x",
                "p, k, x + {end} - {start} as x",
                "p, k, case when x > 5 then x else -x end as x",
                "p, k, cast({start} as int) + x as x",
                "{start} as p, k, x",
            )
        )
        distinct = self._random.choice(("", "", "distinct "))
        return f"select {distinct}{columns} from {self._relation(depth)} {name}{self._where(name)}"

    def _grouped(self, depth: int) -> str:
        name, relation = self._name(), self._relation(depth)
        where = self._where(name)
        return self._random.choice(
            (
                f"select max(p) as p, k, sum(x) as x from {relation} {name}{where} group by k",
                f"select min(p) as p, k, count(*) as x from {relation} {name}{where} group by all",
                f"select p, k % 2 as k, count(distinct x) as x from {relation} {name}{where} group by 1, 2",
                f"select max(p) as p, k, sum(x) filter (where x > 2) as x from {relation} {name}{where} "
                "group by k having count(*) > 1",
                f"select p - p % 4 as p, max(k) as k, {{end}} + count(x) as x from {relation} {name}{where} "
                "group by p - p % 4",
                f"select max(p) as p, k, sum(sum(x)) over (order by k) as x from {relation} {name}{where} group by k",
            )
        )

    def _windowed(self, depth: int) -> str:
        name, relation = self._name(), self._relation(depth)
        window = self._random.choice(
            (
                "sum(x) over (partition by k)",
                "count(*) over ()",
                "rank() over (partition by k order by p)",
                "max(x) over (order by p rows between unbounded preceding and unbounded following)",
                "sum(x) over (order by p range between 3 preceding and current row)",
                "dense_rank() over (order by x desc, p)",
            )
        )
        return f"select p, k, {window} as x from {relation} {name}{self._where(name)}"

    def _joined(self, depth: int) -> str:
        left, right = self._name(), self._name()
        ours = self._relation(depth)
        theirs = self._random.choice((self._relation(depth - 1), self._relation(depth - 1), "{l}"))
        kind = self._random.choice(JOINS)
        half = "semi" in kind or "anti" in kind
        if theirs == "{l}":
            columns = f"{left}.*" if half else f"{left}.p, {left}.k, coalesce({right}.y, {left}.x) as x"
        elif half:
            columns = self._random.choice(("*", f"{left}.p, {left}.k, {left}.x"))
        else:
            columns = f"coalesce({left}.p, {right}.p) as p, {left}.k, {right}.x"
        condition = self._random.choice(
            (f" on {left}.k = {right}.k", f" on {left}.k = {right}.k and {left}.x < {{end}}")
        )
        if kind in ("cross join", ","):
            condition = self._random.choice(("", f" where {left}.k = {right}.k"))
        elif not half and self._random.random() < 0.2:
            condition = " using (k)"
            columns = f"{left}.p, k, {left}.x"
        between = f" {kind} " if kind != "," else ", "
        return f"select {columns} from {ours} {left}{between}{theirs} {right}{condition}"

    def chain(self, depth: int = 0) -> str:
        """Three relations; no two of a FROM clause have a column in common but those that USING names."""
        left, middle, right = self._name(), self._name(), self._name()
        kinds = [self._random.choice(KEEPING) for _ in range(2)]
        shared = self._random.random() < 0.4
        column, condition = ("k", "using (k)") if shared else ("k2", f"on {left}.k = {middle}.k2")
        second = f"(select p as p2, k as {column}, x as x2 from {self._relation(depth - 1)})"
        common, last = self._random.choice(
            ((column, f"using ({column})"), ("x2", "using (x2)"), ("x3", f"on {middle}.x2 = {right}.x3"))
        )
        other = "x3" if common in ("k", "k2") else "k3"
        columns = f"p as p3, k as {common}, x as {other}" if other == "x3" else f"p as p3, k as {other}, x as {common}"
        third = f"(select {columns} from {self._relation(depth - 1)})"
        return (
            f"select coalesce({left}.p, {middle}.p2, {right}.p3) as p, "
            f"coalesce({left}.x, {right}.{other}) as k, x2 as x "
            f"from {self._relation(depth)} {left} {kinds[0]} {second} {middle} {condition} "
            f"{kinds[1]} {third} {right} {last}"
        )

    def _set(self, depth: int) -> str:
        word = self._random.choice(("union all", "union", "except", "intersect", "except all", "intersect all"))
        tables = (self._relation(depth - 1), self._relation(depth - 1))
        sides = [f"select p, k, x from {table} {self._name()}" for table in tables]
        return f"{sides[0]} {word} {sides[1]}"

    def _named(self, depth: int) -> str:
        name, inner = self._name(), self.query(depth - 1)
        columns = self._random.choice(("", "(p, k, x)"))
        # one square of all rows is enough
        joined = "select u.p, v.k, u.x from {0} u join {0} v on u.k = v.k"
        halved = "select u.p, u.k, u.x from {0} u left semi join {0} v on u.k = v.k"
        both = (halved if " v on " in inner else joined).format(name)
        return self._random.choice(
            (
                f"with {name}{columns} as ({inner}) select * from {name}",
                f"with {name}{columns} as ({inner}) {both}",
                f"with {name}{columns} as ({inner}) select p, k, x from {name} union all select p, k, -x from {name}",
            )
        )

    def _spread(self, depth: int) -> str:
        name, outer = self._name(), self._random.choice(("", "outer "))
        relation = self._relation(depth)
        return (
            f"select p, k, e as x from {relation} {name} "
            f"lateral view {outer}explode(sequence(x % 3, 3)) v as e{self._where(name)}"
        )
