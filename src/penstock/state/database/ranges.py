"""How do interval sets travel to PostgreSQL and back?"""

from __future__ import annotations

from psycopg import adapt, postgres
from psycopg.abc import AdaptContext, Buffer
from psycopg.pq import Format

from penstock.values.intervals import Interval, IntervalSet

_NO_BRACKETS = str.maketrans("", "", "[){}")


class _SetDumper(adapt.Dumper):
    oid = postgres.types["int8multirange"].oid

    def dump(self, obj: IntervalSet) -> bytes:
        edges = obj.edges
        parts = [f"[{start},{end})" for start, end in zip(edges[::2], edges[1::2], strict=True)]
        return f"{{{','.join(parts)}}}".encode()


class _SetLoader(adapt.Loader):
    """Without its brackets the text is the edges in order: a million parts take a few tenths of a second."""

    format = Format.TEXT

    def load(self, data: Buffer) -> IntervalSet:
        text = bytes(data).decode().translate(_NO_BRACKETS)
        return IntervalSet(tuple(map(int, text.split(",")))) if text else IntervalSet()


class _IntervalDumper(adapt.Dumper):
    oid = postgres.types["int8range"].oid

    def dump(self, obj: Interval) -> bytes:
        return f"[{obj.start},{obj.end})".encode()


class _IntervalLoader(adapt.Loader):
    format = Format.TEXT

    def load(self, data: Buffer) -> Interval:
        start, end = bytes(data).decode()[1:-1].split(",")
        return Interval(int(start), int(end))


def register(context: AdaptContext) -> None:
    """Let `context` read int8range as Interval and int8multirange as IntervalSet, and write them.

    The tables hold no empty and no endless ranges: "for ever" is the last int64.
    """
    context.adapters.register_dumper(IntervalSet, _SetDumper)
    context.adapters.register_dumper(Interval, _IntervalDumper)
    context.adapters.register_loader("int8multirange", _SetLoader)
    context.adapters.register_loader("int8range", _IntervalLoader)
