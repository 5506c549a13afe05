"""Does a shared query give each chunk the rows of its own query? SQLite answers here, Spark in `tests/spark`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from random import Random

import pytest
from fuzzing import effort
from generated_queries import Author
from hypothesis import given
from hypothesis import strategies as st
from memory_tags import stars_understood, tags_of

from penstock.engine.values.job import Tags
from penstock.project.queries import sharing
from penstock.project.queries.sharing import Share, Unshareable, shared
from penstock.project.templates.rendering import PLACEHOLDER_BOUNDS
from penstock.values.intervals import Interval
from penstock.values.tasks import TAG

CHUNKS = (Interval(0, 10), Interval(10, 20), Interval(20, 30), Interval(50, 60))
LOOKS = ((0, 0), (12, 0), (3, 25))
Rows = Counter[tuple[object, ...]]


def tables(look: tuple[int, int]) -> sqlite3.Connection:
    """`a` and `b` whole with their tags, and `a_N` and `b_N` as chunk N alone sees them."""
    made, chance = sqlite3.connect(":memory:"), Random(7)
    made.execute("create table l (k, y)")
    made.executemany("insert into l values (?, ?)", [(0, 2), (1, 7), (1, 8), (3, 1)])
    for name in "ab":
        rows = [(p, chance.choice((None, 0, 1, 2, 3)), chance.randrange(9)) for p in range(-20, 80) if p % 3]
        made.execute(f"create table {name} (p, k, x, {TAG})")
        tags = Tags(CHUNKS, *look)
        tagged = [(*row, tag) for row in rows for tag in tags_of(tags, row[0])]
        made.executemany(f"insert into {name} values (?, ?, ?, ?)", tagged)
        for number, chunk in enumerate(CHUNKS):
            made.execute(f"create view {name}_{number} as select p, k, x from {name} where {TAG} = {chunk.start}")
    return made


CONNECTIONS = {look: tables(look) for look in LOOKS}


def differs(sql: str, look: tuple[int, int]) -> bool | None:
    """None: SQLite does not know the syntax, or the query is not shared."""
    connection = CONNECTIONS[look]
    text = sql.format(a="a", b="b", l="l", start=PLACEHOLDER_BOUNDS.start, end=PLACEHOLDER_BOUNDS.end)
    try:
        together = shared(text, frozenset("ab"), Share(CHUNKS, lambda tag: f"({tag} + 10)"))
    except Unshareable:
        return None
    try:
        single: Rows = Counter()
        for number, chunk in enumerate(CHUNKS):
            one = sql.format(a=f"a_{number}", b=f"b_{number}", l="l", start=chunk.start, end=chunk.end)
            single.update((*row, chunk.start) for row in connection.execute(one))
        many = connection.execute(stars_understood(together)).fetchall()
    except sqlite3.Error as error:
        # where SQLite sees two tags to choose from, Spark takes the first
        return True if f"ambiguous reference to {TAG} in USING()" in str(error) else None
    # a star shows the tag there, which stands last in any case
    found = Counter((*row[:3], row[-1]) for row in many)
    return found != single


@effort(60)
@given(st.integers(0, 100_000), st.sampled_from(LOOKS))
def test_any_batching_gives_the_rows_of_one_by_one(seed: int, look: tuple[int, int]) -> None:
    sql = Author(seed).query()
    assert not differs(sql, look), sql


def test_a_chain_of_joins_keeps_the_rows_of_all_sides_and_most_chains_are_compared() -> None:
    answers = {seed: differs(Author(seed).chain(), LOOKS[seed % 3]) for seed in range(100)}
    assert not [Author(seed).chain() for seed, answer in answers.items() if answer]
    assert sum(answer is not None for answer in answers.values()) > 40


def test_most_that_is_drawn_is_compared() -> None:
    answers = [differs(Author(seed).query(), LOOKS[seed % 3]) for seed in range(60)]
    assert sum(answer is not None for answer in answers) > 20


@pytest.mark.parametrize("name", ["_partition", "_equated"])
def test_a_tag_that_is_left_out_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr(sharing, name, lambda *arguments: None)
    assert any(differs(Author(seed).query(), LOOKS[seed % 3]) for seed in range(400))
