"""Indexes: what is asked often never reads a whole table that grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from penstock.state.database.statements import statement
from penstock.values.intervals import ranges

if TYPE_CHECKING:
    from conftest import Story

FILL = [
    "insert into task"
    " (model, generation, lane, ranges, chunks, choices, reason, max_attempts, state, attempt, finished_at)"
    " select g.model, g.no, 'forward', int8multirange(int8range(i, i + 1)), '{}', '{}', '', 1,"
    " case when i % 50 = 0 then 'queued' else 'succeeded' end, 1, case when i % 50 <> 0 then clock() end"
    " from generation g, generate_series(1, 1500) i",
    "insert into attempt (task, n, worker, token, outcome, snapshot, ended_at)"
    " select id, 1, 'w', gen_random_uuid(), 'succeeded', 1, clock() from task",
    "insert into frontier (generation, snapshot, inputs, task, attempt) select generation, 1, '{}', id, 1 from task",
    "insert into coverage (generation, kind, range, task, attempt, frontier, snapshot, rows)"
    " select t.generation, 'cover', int8range(lower(t.ranges), upper(t.ranges)), t.id, 1, f.id, 1, 1"
    " from task t join frontier f on f.task = t.id",
    "analyze task, attempt, frontier, coverage",
]
GROWING = {"task", "attempt", "coverage", "frontier"}
NEXT = str(2**62)
"""A transaction that is still to come: whoever looks again asks for few tasks of very many, never for all of them."""
HOT: dict[str, dict[str, object]] = {
    "claim": {"worker": "w", "models": ["core.a"], "lease_seconds": 1.0},
    "heartbeat": {"tasks": [1], "attempts": [1], "tokens": [uuid4()], "lease_seconds": 1.0},
    "fence": {"task": 1, "attempt": 1, "token": uuid4()},
    "abandoned_tasks": {"own_worker": None},
    "live_workers": {},
    "state_moment": {"since": NEXT},
    "state_tasks": {"generations": [1], "dead_since": None},
    "changed_tasks": {"generations": [1], "since": NEXT, "ids": [1, 2]},
    "covered_after": {"generations": [1, 2], "through": [5, 6]},
    "read_signed_rows": {"generations": [1, 2], "through": [5, 6]},
    "count_unfolded": {"generation": 1, "most": 1000},
    "connected_rows": {"generation": 1, "ranges": ranges((0, 10))},
    "overlapping_rows": {"generation": 1, "ranges": ranges((0, 10))},
    "frontiers": {"frontiers": [1]},
    "tasks": {"model": "core.a", "states": None, "limit": 10},
    "attempts": {"tasks": [1, 2]},
    "owned_tasks": {"tasks": [uuid4()]},
    "keep_log": {"task": 1, "attempt": 1, "token": uuid4(), "log_tail": ""},
    "prune_frontiers": {"frontiers": [1]},
}


def whole_tables(story: Story, name: str) -> set[str]:
    """Which growing tables a statement reads from end to end even if the planner tries hard not to.

    An index that is read without a condition is the whole table too, unless it only holds a part of it or a limit ends
    the reading.
    """
    connection = story.state.database.connection
    connection.execute("set enable_seqscan = off")
    whole = dict(
        connection.execute(
            "select c.relname::text, t.relname::text from pg_index i join pg_class c on c.oid = i.indexrelid "
            "join pg_class t on t.oid = i.indrelid "
            "where i.indpred is null and c.relnamespace = quote_ident(current_schema())::regnamespace"
        ).fetchall()
    )
    [[[plan]]] = connection.execute(b"explain (format json) " + statement(name), HOT[name]).fetchall()
    found = set()
    for node, limited in nodes(plan["Plan"]):
        if node["Node Type"] == "Seq Scan":
            found.add(node["Relation Name"])
        elif "Index Name" in node and "Index Cond" not in node and not limited:
            found.add(whole.get(node["Index Name"]))
    return found & GROWING


def nodes(plan: dict[str, Any], limited: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every part of a plan, and whether it is only read until there is enough."""
    yield plan, limited
    for part in plan.get("Plans", ()):
        outer = part.get("Parent Relationship") == "Outer"
        ends = plan["Node Type"] == "Limit" or (limited and outer and "Loop" in plan["Node Type"])
        yield from nodes(part, ends)


@pytest.fixture
def much(story: Story) -> Iterator[Story]:
    """So many rows that an index pays, and a planner that knows it."""
    connection = story.state.database.connection
    with connection.transaction(force_rollback=True):
        for text in FILL:
            connection.execute(text.encode())
        yield story


def test_what_is_asked_often_is_found_by_an_index(much: Story) -> None:
    assert {name: found for name in HOT if (found := whole_tables(much, name))} == {}


def test_without_its_index_the_same_question_reads_everything(much: Story) -> None:
    much.execute("drop index coverage_span")
    assert whole_tables(much, "overlapping_rows") == {"coverage"}
