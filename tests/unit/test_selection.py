"""Does a worker claim only what it was told to, and no more at a time?"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st
from observed import model as made
from observed import strict

from penstock.planner.policy.selection import Pattern, Selection
from penstock.values.models import IntervalModel, Model, Source

EXAMPLES = effort(25)


def model(name: str, *tags: str) -> IntervalModel:
    return made(strict(10), name=name, tags=tags)


def select(*patterns: str | tuple[str, int], tags: Sequence[str] = (), concurrency: int = 10) -> Selection:
    listed = (Pattern(one) if isinstance(one, str) else Pattern(*one) for one in patterns)
    return Selection(tuple(listed), frozenset(tags), concurrency)


MAIN, MAIN_2, TEST = model("mainnet.a"), model("mainnet.b", "slow"), model("testnet.x", "slow", "wide")
ALL: tuple[Model, ...] = (MAIN, MAIN_2, TEST)


# Which models


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", {"mainnet.a", "mainnet.b", "testnet.x"}),
        ("mainnet.*", {"mainnet.a", "mainnet.b"}),
        ("*.x", {"testnet.x"}),
        ("mainnet.[b-z]", {"mainnet.b"}),
        ("?ainnet.a", {"mainnet.a"}),
        ("MAINNET.*", set()),
        ("mainnet", set()),
    ],
)
def test_a_pattern_is_a_glob_over_the_whole_name(pattern: str, expected: set[str]) -> None:
    assert select(pattern).claimable(ALL, ()) == expected


def test_any_pattern_and_any_tag_will_do_but_one_of_each() -> None:
    assert select("mainnet.a", "testnet.*").claimable(ALL, ()) == {"mainnet.a", "testnet.x"}
    assert select("*", tags=["slow"]).claimable(ALL, ()) == {"mainnet.b", "testnet.x"}
    assert select("*", tags=["wide", "other"]).claimable(ALL, ()) == {"testnet.x"}
    assert select("mainnet.*", tags=["wide"]).claimable(ALL, ()) == frozenset()
    assert select().claimable(ALL, ()) == frozenset()


def test_sources_are_selected_like_models() -> None:
    source = Source(name="raw.blocks", file="blocks.yml", tags=("slow",))
    assert select("raw.*", tags=["slow"]).matches(source)
    assert not select("raw.*", tags=["wide"]).matches(source)


# How many at a time


def test_the_total_closes_everything() -> None:
    both = select("*", concurrency=2)
    assert both.claimable(ALL, ["mainnet.a"]) == {"mainnet.a", "mainnet.b", "testnet.x"}
    assert both.claimable(ALL, ["mainnet.a", "mainnet.a"]) == frozenset()


def test_a_full_pattern_closes_its_own_models_only() -> None:
    one = select(("mainnet.*", 1), "testnet.*")
    assert one.claimable(ALL, ["mainnet.a"]) == {"testnet.x"}
    assert one.claimable(ALL, ["testnet.x"] * 5) == {"mainnet.a", "mainnet.b", "testnet.x"}


def test_a_task_takes_a_place_of_the_first_pattern_that_has_one() -> None:
    one = select(("mainnet.*", 1), ("*", 1))
    assert one.claimable(ALL, ["mainnet.a"]) == {"mainnet.a", "mainnet.b", "testnet.x"}, "the second pattern is free"
    assert one.claimable(ALL, ["testnet.x"]) == {"mainnet.a", "mainnet.b"}
    assert one.claimable(ALL, ["mainnet.a", "mainnet.b"]) == frozenset()


def test_what_still_runs_and_is_no_longer_selected_counts_for_the_total_only() -> None:
    one = select(("mainnet.*", 1), concurrency=2)
    assert one.claimable(ALL, ["testnet.x"]) == {"mainnet.a", "mainnet.b"}
    assert one.claimable(ALL, ["testnet.x", "testnet.x"]) == frozenset()


# Whatever is claimed and ends

names = st.builds("{}.{}".format, st.sampled_from(["mainnet", "testnet"]), st.sampled_from(["a", "b", "x"]))
globs = st.sampled_from(["*", "mainnet.*", "testnet.*", "*.x", "*.[ab]", "mainnet.a", "testnet.x", "*net.a"])
patterns = st.builds(Pattern, globs, st.none() | st.integers(1, 3))
tags = st.sets(st.sampled_from(["slow", "wide"])).map(frozenset)
selections = st.builds(Selection, st.lists(patterns, max_size=4).map(tuple), tags, st.integers(1, 6))
models = st.dictionaries(names, tags, min_size=1).map(
    lambda tagged: [model(name, *tagged[name]) for name in sorted(tagged)]
)
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40)


def has_places(running: Sequence[str], listed: Sequence[Pattern]) -> bool:
    """Every running task can be given a place of a pattern that names it (all ways are tried)."""
    held: dict[int, list[str]] = {}

    def seat(name: str, tried: set[int]) -> bool:
        for at, pattern in enumerate(listed):
            if at in tried or not fnmatchcase(name, pattern.pattern):
                continue
            tried.add(at)
            there = held.setdefault(at, [])
            if pattern.concurrency is None or len(there) < pattern.concurrency:
                there.append(name)
                return True
            for other in list(there):
                there.remove(other)
                if seat(other, tried):
                    there.append(name)
                    return True
                there.append(other)
        return False

    return all(seat(name, set()) for name in running)


def live(chosen: Selection, known: Sequence[Model], moves: Sequence[tuple[bool, int]]) -> None:
    """Claims and ends in the order of `moves`; the caps hold after each."""
    running: list[str] = []
    by_name = {one.name: one for one in known}
    for claims, number in moves:
        allowed = sorted(chosen.claimable(known, running))
        if claims and allowed:
            running.append(allowed[number % len(allowed)])
        elif not claims and running:
            running.pop(number % len(running))
        assert len(running) <= chosen.concurrency
        assert has_places(running, chosen.patterns)
        for name in running:
            assert any(fnmatchcase(name, pattern.pattern) for pattern in chosen.patterns)
            assert not chosen.tags or chosen.tags & set(by_name[name].tags)


@EXAMPLES
@given(selections, models, steps)
def test_s0_15_both_caps_hold_through_any_claims_and_ends(
    chosen: Selection, known: list[Model], moves: list[tuple[bool, int]]
) -> None:
    live(chosen, known, moves)


@EXAMPLES
@given(patterns.filter(lambda one: one.pattern.startswith("mainnet")), st.lists(names, max_size=6), models)
def test_s0_15_a_worker_of_mainnet_never_claims_from_testnet(
    pattern: Pattern, running: list[str], known: list[Model]
) -> None:
    found = Selection((pattern,), frozenset(), 10).claimable(known, running)
    assert not [name for name in found if name.startswith("testnet")]


@EXAMPLES
@given(selections, models)
def test_an_idle_worker_may_claim_all_that_it_selects(chosen: Selection, known: list[Model]) -> None:
    assert chosen.claimable(known, ()) == {one.name for one in known if chosen.matches(one)}


@EXAMPLES
@given(selections, models, st.lists(names, max_size=5), st.integers(0, 4))
def test_the_end_of_a_task_closes_nothing(
    chosen: Selection, known: list[Model], running: list[str], ended: int
) -> None:
    before = chosen.claimable(known, running)
    left = running[:ended] + running[ended + 1 :]
    assert before <= chosen.claimable(known, left)


# Controls

FULL = select(("mainnet.*", 1), concurrency=2)


def test_negative_control_patterns_that_count_nothing_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Selection, "_places", lambda self, running: [(one, None) for one in self.patterns])
    with pytest.raises(AssertionError):
        live(FULL, ALL, [(True, 0), (True, 0)])


def test_negative_control_a_pattern_that_takes_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pattern, "matches", lambda self, name: True)
    with pytest.raises(AssertionError):
        live(FULL, ALL, [(True, 2)])


def test_negative_control_the_caps_of_the_test_are_really_asked() -> None:
    assert has_places(["mainnet.a"], FULL.patterns)
    assert not has_places(["mainnet.a", "mainnet.b"], FULL.patterns)
    assert has_places(["mainnet.a", "mainnet.b"], select(("*.a", 1), ("*", 1)).patterns)
    assert has_places(["mainnet.b", "mainnet.a"], select(("mainnet.*", 1), ("*.a", 1)).patterns)
