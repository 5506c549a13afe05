"""What does a request to recompute reach, and in how many chunks?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from observed import model, partial, strict

from penstock.planner.change.losses import lost, words
from penstock.planner.change.reach import carried, chunk_count, descendants, gone, recompute
from penstock.values.intervals import NOTHING, IntervalSet, ranges
from penstock.values.models import Chunking, Dependency, Graph, IntervalModel, Limits, Source
from penstock.values.records import Generation, SourceRecord, StateView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = Source(name="raw.s", file="s.yml", location="./s", position="n", axis="block")


def named(name: str, interval: Chunking, *inputs: Dependency | str, lowest: int | None = None) -> IntervalModel:
    return model(interval, *inputs, name=name, limits=Limits(min=lowest))


CHAIN = Graph.of(
    (
        SOURCE,
        named("t.a", strict(10), "raw.s"),
        named("t.b", strict(20), Dependency("t.a", before=30)),
        named("t.c", partial(1, 50), "t.b", lowest=35),
        named("t.other", strict(10), "raw.s"),
    )
)


def view(held: Mapping[str, IntervalSet], expired: int | None = None) -> StateView:
    built = {
        name: Generation(no, uuid4(), name, "", "current", "", 0, 1, 1, None, covered=covered, stale=NOTHING)
        for no, (name, covered) in enumerate(held.items())
    }
    seen = SourceRecord("raw.s", "id", 1, None, {}, 0, 100, 1, 1, None, None, NOW, None, expired_pos=expired)
    return StateView(
        at=NOW,
        revision="r",
        paused=frozenset(),
        working=built,
        current=built,
        sources={"raw.s": seen},
        work={},
        events=0,
    )


ALL = view({name: ranges((0, 100)) for name in ("t.a", "t.b", "t.c", "t.other")})


def test_an_eager_cascade_goes_hop_by_hop_through_look_back_align_and_limits() -> None:
    found = carried(CHAIN, ALL, {"t.a": ranges((10, 20))})
    assert found == {"t.a": ranges((10, 20)), "t.b": ranges((0, 60)), "t.c": ranges((35, 60))}


def test_only_what_is_covered_is_reached() -> None:
    found = carried(CHAIN, view({"t.a": ranges((0, 100)), "t.b": ranges((40, 60))}), {"t.a": ranges((10, 20))})
    assert found == {"t.a": ranges((10, 20)), "t.b": ranges((40, 60))}


def test_parents_are_listed_before_children_and_those_with_nothing_to_do_not_at_all() -> None:
    found = recompute(CHAIN, {"t.c": ranges((0, 10)), "t.a": ranges((0, 30)), "t.b": NOTHING})
    assert [(one.model, one.chunks) for one in found] == [("t.a", 3), ("t.c", 0)]
    assert found[0].row == {"model": "t.a", "ranges": [[0, 30]], "chunks": 3}


@pytest.mark.parametrize(
    ("interval", "scope", "count"),
    [
        (strict(10), ranges((0, 30)), 3),
        (strict(10), ranges((15, 16)), 1),
        (strict(10), ranges((5, 15)), 2),
        (strict(10), ranges((0, 10), (50, 60)), 2),
        (partial(1, 50), ranges((0, 120)), 3),
        (partial(1, 50), ranges((7, 8)), 1),
        (partial(5, 20, 5), ranges((3, 24)), 2),
    ],
)
def test_chunks_are_counted_as_they_will_be_cut(interval: Chunking, scope: IntervalSet, count: int) -> None:
    assert chunk_count(named("t.x", interval), scope) == count


def test_what_was_made_of_rows_that_left_their_source_cannot_be_made_again() -> None:
    later = view({"t.a": ranges((0, 100))}, expired=34)
    assert gone(CHAIN, later, CHAIN.interval_model("t.a")).within(0, 100) == ranges((0, 40))
    assert not gone(CHAIN, later, CHAIN.interval_model("t.b"))
    assert not gone(CHAIN, ALL, CHAIN.interval_model("t.a"))


def test_what_was_made_of_a_look_back_that_left_its_source_cannot_be_made_again_either() -> None:
    rolling = named("t.rolling", strict(10), Dependency("raw.s", before=20))
    later = view({"t.rolling": ranges((0, 100))}, expired=34)
    assert gone(Graph.of((SOURCE, rolling)), later, rolling).within(0, 100) == ranges((0, 60))


def test_what_a_rebuilt_model_loses_is_lost_by_those_that_are_rebuilt_with_it() -> None:
    held = {name: ranges((0, 100)) for name in ("t.a", "t.b", "t.c", "t.other")}
    later = view(held, expired=34)
    assert lost(CHAIN, later, {"t.a", "t.b", "t.c"}) == {
        "t.a": ranges((0, 40)),
        "t.b": ranges((0, 40)),
        "t.c": ranges((0, 40)),
    }
    assert lost(CHAIN, later, {"t.b", "t.c"}) == {}, "its rows are still there"
    assert lost(CHAIN, ALL, set(held)) == {}


def test_rows_that_were_kept_after_they_left_the_inputs_are_lost_with_the_table() -> None:
    keyed = model(strict(10), "raw.s", update_strategy="append", unique_key=("n",))
    assert words(keyed, NOTHING) == ("rows that it kept after they left its inputs are lost (on_retract: keep)",)
    assert words(replace(keyed, on_retract="retract"), NOTHING) == ()


def test_every_model_below_is_named_once() -> None:
    assert descendants(CHAIN, ["t.a", "t.b"]) == ("t.c",)
    assert set(descendants(CHAIN, ["raw.s"])) == {"t.a", "t.b", "t.c", "t.other"}
