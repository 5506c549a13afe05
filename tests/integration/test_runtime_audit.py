"""Are writes of others to our tables noticed, and put right by the next run?"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deployment import Deployment, Heard, commit
from faults import Fault, Killed, raising

from penstock.answers.verify import verify
from penstock.engine.commit import evict as evicting
from penstock.runtime.observe import audit as runtime_audit
from penstock.runtime.place.workspace import Workspace, apply
from penstock.runtime.serve import run as runtime_run
from penstock.state.progress.publication import Publication
from penstock.values.intervals import IntervalSet, ranges

COPY = "select n, value from {{ ref('raw.numbers') }}"
CHILD = "select n, value + 1 as value from {{ ref('t.copy') }}"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """A table of four chunks in several files, and one that is made from it."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", COPY)
    made.model("child", CHILD, "interval: 20")
    made.land("numbers", range(20))
    made.run()
    made.land("numbers", range(20, 40))
    made.run()
    return made


def numbers(upto: int, more: int = 0) -> list[tuple[object, ...]]:
    return [(n, n * 7 + more) for n in range(upto)]


def look(workspace: Workspace) -> list[str]:
    """What is told beside what is to be computed again: nothing, unless something is wrong."""
    told = [
        one for one in runtime_audit.audit(workspace.resolver, workspace.state, workspace.state.views.whole()) if one
    ]
    assert all(one.endswith("is recomputed") for one in told), told
    return told


def is_exact(trial: Deployment, upto: int = 40) -> bool:
    """What is served, and the newest snapshot that any other reader sees."""
    return all(
        trial.rows(name) == newest(trial, name) == numbers(upto, more) for name, more in (("copy", 0), ("child", 1))
    )


def newest(trial: Deployment, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in DeltaTable(trial.place(name)).to_pyarrow_table().to_pylist())


def deleted(trial: Deployment, table: DeltaTable) -> None:
    table.delete("n >= 12 and n < 17")


def deleted_by_files(trial: Deployment, table: DeltaTable) -> None:
    table.delete("n >= 10 and n < 20")


def updated(trial: Deployment, table: DeltaTable) -> None:
    table.update({"value": "-1"}, predicate="n = 33")


def appended(trial: Deployment, table: DeltaTable) -> None:
    commit(table.table_uri, {"n": [15, 16], "value": [-1, -1]})


def overwritten(trial: Deployment, table: DeltaTable) -> None:
    commit(table.table_uri, {"n": [1, 2, 3], "value": [-1, -1, -1]}, mode="overwrite")


def emptied(trial: Deployment, table: DeltaTable) -> None:
    table.delete()


def restored(trial: Deployment, table: DeltaTable) -> None:
    table.restore(1)


Damage = Callable[[Deployment, DeltaTable], None]
DAMAGES = (deleted, deleted_by_files, updated, appended, overwritten, emptied, restored)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_foreign_change_is_noticed_and_repaired_by_the_next_run(trial: Deployment, damage: Damage) -> None:
    damage(trial, DeltaTable(trial.place("copy")))
    assert newest(trial, "copy") != numbers(40)
    assert trial.rows("copy") == numbers(40)  # readers are served what was accepted
    summary = trial.run()
    assert summary.failed == 0
    assert summary.tasks > 0
    assert is_exact(trial)
    assert trial.run().tasks == 0


def test_a_run_tells_whose_change_it_repairs_and_where_once(trial: Deployment) -> None:
    updated(trial, DeltaTable(trial.place("copy")))
    snapshot = DeltaTable(trial.place("copy")).version()
    heard = Heard()
    trial.run(progress=heard)
    assert heard.notes == [
        f"t.copy: UPDATE by another program changed it at snapshot {snapshot}: [33, 34) is recomputed"
    ]
    again = Heard()
    trial.run(progress=again)
    assert again.notes == []


def test_verify_names_the_snapshots_of_others_that_it_does_not_compare(trial: Deployment) -> None:
    updated(trial, DeltaTable(trial.place("copy")))
    with trial.opened() as workspace:
        copy, child = verify(workspace, workspace.interval_models(("copy", "child")), None, None).models
    assert (copy.unseen, child.unseen) == ([DeltaTable(trial.place("copy")).version()], [])
    assert (copy.differences, child.differences) == (1, 0)
    trial.run(step=Fault("intended", lambda: updated(trial, DeltaTable(trial.place("copy")))))
    with trial.opened() as workspace:
        [compared] = verify(workspace, workspace.interval_models(("copy",)), None, None).models
        assert trial.current("copy").accepted_snapshot == DeltaTable(trial.place("copy")).version()
        assert compared.unseen == []
    trial.run()
    with trial.opened() as workspace:
        assert [one.unseen for one in verify(workspace, workspace.interval_models(()), None, None).models] == [[], []]


def test_only_the_touched_chunks_are_computed_again(trial: Deployment) -> None:
    before = trial.chunks("copy")
    deleted(trial, DeltaTable(trial.place("copy")))
    trial.run()
    again = trial.chunks("copy")
    for chunk in before:
        again.remove(chunk)
    assert all(10 <= start < 20 for start, _ in again)
    assert trial.tasks("copy")[-1].lane == "repair"


def test_a_child_is_left_alone_when_its_parent_is_repaired_to_the_same_rows(trial: Deployment) -> None:
    before = trial.chunks("child")
    deleted(trial, DeltaTable(trial.place("copy")))
    trial.run("copy")
    assert trial.rows("child") == numbers(40, 1)
    trial.run()
    assert trial.rows("child") == numbers(40, 1)
    assert len(trial.chunks("child")) - len(before) <= 1


def test_damage_in_two_tables_at_once_is_repaired_in_both(trial: Deployment) -> None:
    emptied(trial, DeltaTable(trial.place("copy")))
    updated(trial, DeltaTable(trial.place("child")))
    assert trial.run().failed == 0
    assert is_exact(trial)


def test_damage_while_new_rows_arrive_is_repaired_too(trial: Deployment) -> None:
    deleted(trial, DeltaTable(trial.place("copy")))
    trial.land("numbers", range(40, 60))
    assert trial.run().failed == 0
    assert is_exact(trial, 60)


def test_damage_done_during_a_run_is_repaired_by_the_next(trial: Deployment) -> None:
    place = trial.place("copy")
    trial.land("numbers", range(40, 60))
    trial.run("copy", step=Fault("staged", lambda: deleted(trial, DeltaTable(place))))
    trial.run()
    assert is_exact(trial, 60)


def test_a_table_is_looked_at_as_it_is_known_when_its_turn_comes(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_audit, "KNOWN_SECONDS", 0.0)
    with trial.opened() as workspace:
        state = workspace.state
        tables = runtime_audit.own_tables(workspace.resolver, state.views, state.views.whole())
        first = next(tables)
        trial.land("numbers", range(40, 60))
        trial.run()
        working = state.views.whole().working
        assert [table.generation for table in tables] == [
            one for one in working.values() if one.no != first.generation.no
        ]
        assert working[first.model.name] != first.generation


FAR = {"n": [5000, 5001, 5002], "value": [1, 2, 3]}


def test_rows_that_others_put_where_nothing_is_covered_are_found_by_verify(trial: Deployment) -> None:
    commit(trial.place("copy"), FAR)
    with trial.opened() as workspace:
        current = workspace.state.views.whole().current["t.copy"]
        workspace.state.generations.accept_snapshot(
            current.no, current.accepted_snapshot or 0, (current.accepted_snapshot or 0) + 1
        )
        verifications = verify(workspace, workspace.interval_models(("copy",)), None, None).models
    assert [(one.strays, one.differences) for one in verifications] == [(3, 3)]


def test_rows_that_others_put_where_nothing_is_covered_are_taken_out_and_reported(trial: Deployment) -> None:
    commit(trial.place("copy"), FAR)
    commit(trial.place("copy"), {"n": [45, 15], "value": [-1, -1]})
    notes = Heard()
    assert trial.run(progress=notes).failed == 0
    [said] = notes.notes
    assert "outside the covered ranges" in said
    assert "[15, 16) is recomputed" in said
    assert is_exact(trial)
    assert trial.run(progress=(again := Heard())).tasks == 0
    assert again.notes == []
    trial.land("numbers", range(40, 60))
    trial.run()
    assert is_exact(trial, 60)


def test_rows_that_were_covered_meanwhile_are_not_taken_out(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(trial.place("copy"), {"n": [45], "value": [-1]})
    trial.land("numbers", range(40, 60))
    whole, looks = evicting.without, runtime_audit.audit

    def slow(*some: object) -> object:
        staged = whole(*some)  # type: ignore[arg-type]
        monkeypatch.setattr(evicting, "without", whole)
        monkeypatch.setattr(runtime_run, "audit", lambda *_: ())
        trial.run()
        monkeypatch.setattr(runtime_run, "audit", looks)
        return staged

    monkeypatch.setattr(evicting, "without", slow)
    trial.run()
    assert is_exact(trial, 60)


def published_meanwhile(trial: Deployment, monkeypatch: pytest.MonkeyPatch, *, blind: bool = False) -> list[str]:
    """After the look a worker publishes the rows of the place, and is killed before that is recorded."""
    place = trial.place("copy")
    commit(place, {"n": [45], "value": [-1]})
    trial.land("numbers", range(40, 60))
    whole, looks = evicting.without, runtime_audit.audit

    def late(table: evicting.Table, scope: IntervalSet, audited: int) -> object:
        monkeypatch.setattr(evicting, "without", whole)
        monkeypatch.setattr(runtime_run, "audit", lambda *_: ())
        with pytest.raises(Killed):
            trial.run("copy", step=Fault("delta committed", raising(Killed())))
        monkeypatch.setattr(runtime_run, "audit", looks)
        return whole(table, scope, DeltaTable(place).version() if blind else audited)

    monkeypatch.setattr(evicting, "without", late)
    notes = Heard()
    trial.run(progress=notes)
    return notes.notes


def test_rows_that_a_worker_published_after_the_look_are_not_taken_out(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert published_meanwhile(trial, monkeypatch) == []
    assert trial.rows("copy") == newest(trial, "copy") == numbers(60)
    trial.run()
    assert is_exact(trial, 60)
    assert trial.most_commits("copy") == 1


def test_control_without_the_look_at_the_snapshot_that_was_audited_they_are_taken_out(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_meanwhile(trial, monkeypatch, blind=True)
    assert newest(trial, "copy") != numbers(60)


def with_accepted(trial: Deployment, rows: dict[str, list[int]]) -> None:
    """Rows where nothing is covered that count as ours."""
    commit(trial.place("copy"), rows)
    with trial.opened() as workspace:
        current = workspace.state.views.whole().current["t.copy"]
        accepted = current.accepted_snapshot or 0
        workspace.state.generations.accept_snapshot(current.no, accepted, accepted + 1)


def test_a_commit_that_may_have_touched_anything_takes_nothing_out(trial: Deployment) -> None:
    with_accepted(trial, FAR)
    place = trial.place("copy")
    commit(place, {"n": [15], "value": [-1]})
    gone = DeltaTable(place).version()
    commit(place, {"n": [16], "value": [-1]})
    DeltaTable(place).create_checkpoint()
    for version in range(gone + 1):  # as cleaning does it
        (Path(place) / "_delta_log" / f"{version:020d}.json").unlink()
    notes = Heard()
    assert trial.run(progress=notes).failed == 0
    assert [text for text in notes.notes if "were removed" in text] == []
    assert newest(trial, "copy") == numbers(40) + [(n, value) for n, value in zip(*FAR.values(), strict=True)]


def test_nothing_is_said_or_committed_when_there_are_no_rows_to_take_out(trial: Deployment) -> None:
    with_accepted(trial, {"n": [39, 5000], "value": [1, 2]})
    place = trial.place("copy")
    commit(place, {"n": [45], "value": [-1]})
    DeltaTable(place).delete("n = 45")
    before, files = DeltaTable(place).version(), sorted(Path(place).rglob("*.parquet"))
    notes = Heard()
    assert trial.run(progress=notes).tasks == 0
    assert notes.notes == []
    assert DeltaTable(place).version() == before
    assert sorted(Path(place).rglob("*.parquet")) == files


def test_a_few_deleted_rows_of_one_large_file_reopen_their_chunks_only(tmp_path: Path, dsn: str) -> None:
    trial = Deployment.empty(tmp_path, dsn)
    trial.source("numbers")
    trial.model("copy", COPY)
    trial.land("numbers", range(400))
    trial.run()
    DeltaTable(trial.place("copy")).optimize.compact()
    trial.run()
    before = trial.chunks("copy")
    DeltaTable(trial.place("copy")).delete("n in (57, 58, 311)")
    trial.run()
    again = trial.chunks("copy")
    for chunk in before:
        again.remove(chunk)
    assert {start // 10 for start, _ in again} == {5, 31}
    assert newest(trial, "copy") == numbers(400)


# what only arranges rows anew


def compacted(table: DeltaTable) -> None:
    assert table.optimize.compact()["numFilesRemoved"] > 1


def z_ordered(table: DeltaTable) -> None:
    table.optimize.z_order(["value"])


def vacuumed(table: DeltaTable) -> None:
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def compacted_and_vacuumed(table: DeltaTable) -> None:
    compacted(table)
    vacuumed(DeltaTable(table.table_uri))


@pytest.mark.parametrize("tidy", [compacted, z_ordered, vacuumed, compacted_and_vacuumed])
def test_tidying_changes_nothing_and_the_next_publish_works(
    trial: Deployment, tidy: Callable[[DeltaTable], None]
) -> None:
    for name in ("copy", "child"):
        tidy(DeltaTable(trial.place(name)))
    assert trial.run().tasks == 0
    assert is_exact(trial)
    trial.land("numbers", range(40, 60))
    assert trial.run().failed == 0
    assert is_exact(trial, 60)


@pytest.mark.parametrize("tidy", [z_ordered, compacted_and_vacuumed])
def test_a_rerun_inside_a_tidied_file_keeps_its_other_rows(
    trial: Deployment, tidy: Callable[[DeltaTable], None]
) -> None:
    tidy(DeltaTable(trial.place("copy")))
    trial.run()
    DeltaTable(str(trial.landing("numbers"))).update({"value": "n * 9"}, predicate="n >= 10 and n < 20")
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((10, 20)), "test", "test")
    assert trial.run().failed == 0
    wanted = [(n, n * (9 if 10 <= n < 20 else 7)) for n in range(40)]
    assert trial.rows("copy") == wanted
    assert trial.rows("child") == [(n, value + 1) for n, value in wanted]


def test_tidying_between_two_attempts_of_a_task_does_not_disturb_its_adoption(trial: Deployment) -> None:
    trial.land("numbers", range(40, 60))
    with pytest.raises(Killed):
        trial.run("copy", step=Fault("delta committed", raising(Killed())))
    compacted(DeltaTable(trial.place("copy")))
    assert trial.run().failed == 0
    assert is_exact(trial, 60)
    assert trial.most_commits("copy") == 1


# tables that vanish


def test_a_removed_table_is_rebuilt(trial: Deployment) -> None:
    shutil.rmtree(trial.place("copy"))
    assert trial.run().failed == 0
    assert is_exact(trial)
    trial.land("numbers", range(40, 60))
    trial.run()
    assert is_exact(trial, 60)


def test_a_table_that_is_removed_again_is_rebuilt_again(trial: Deployment) -> None:
    for _ in range(3):
        shutil.rmtree(trial.place("copy"))
        assert trial.run().failed == 0
        assert is_exact(trial)


def test_damage_in_a_rebuilt_table_is_noticed_although_the_old_one_had_damage_at_the_same_snapshot(
    trial: Deployment,
) -> None:
    trial.model("copy", COPY, "interval: 40")
    versions = []
    for _ in range(2):
        shutil.rmtree(trial.place("copy"))
        trial.run()
        deleted(trial, DeltaTable(trial.place("copy")))
        versions.append(DeltaTable(trial.place("copy")).version())
        trial.run()
        assert is_exact(trial)
    assert len(set(versions)) == 1


def test_what_changed_while_a_table_was_lost_reaches_those_who_had_read_it(trial: Deployment) -> None:
    """The table in its place counts its snapshots from the beginning: they say nothing of what is newer."""
    shutil.rmtree(trial.place("copy"))
    DeltaTable(trial.landing("numbers")).update({"value": "value + 1000"}, predicate="n = 7")
    trial.run()
    wanted = [(n, n * 7 + 1000 * (n == 7)) for n in range(40)]
    assert trial.rows("copy") == wanted
    assert trial.rows("child") == [(n, value + 1) for n, value in wanted]


# commits of ours that nobody accepted


def test_a_commit_of_a_task_that_was_never_accepted_is_noticed(trial: Deployment) -> None:
    landing = DeltaTable(str(trial.landing("numbers")))
    landing.update({"value": "n * 9"}, predicate="n < 10")
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "test", "test")
    with pytest.raises(Killed):
        trial.run("copy", step=Fault("delta committed", raising(Killed())))
    # another revision takes the task away, and the old one comes back
    trial.model("copy", COPY.replace("value", "value + 1 as value"))
    with trial.opened() as workspace:
        apply(workspace)
    trial.model("copy", COPY)
    assert trial.run().failed == 0
    assert trial.rows("copy") == newest(trial, "copy") == [(n, n * (9 if n < 10 else 7)) for n in range(40)]
    reasons = trial.execute("select reason from invalidation where actor = 'audit'")
    assert any("was not accepted" in str(reason) for (reason,) in reasons)


def published_on_top_of_what_is_to_be_adopted(trial: Deployment) -> None:
    """A worker sleeps between its two commits, another publishes, and somebody looks."""
    with pytest.raises(Killed):
        trial.run("copy", step=Fault("delta committed", raising(Killed())))
    [[worker]] = trial.execute("select worker from task where state = 'running'")
    with trial.opened() as asleep:
        asleep.state.workers.register(str(worker), {})
        trial.execute("update task set lease_expires_at = clock() + interval '1 hour' where state = 'running'")
        trial.land("numbers", range(40, 60))
        with pytest.raises(Killed):
            trial.run("copy", step=Fault("published", raising(Killed())))
        look(asleep)


def test_a_commit_that_was_still_to_be_adopted_is_audited_when_its_task_is_gone(trial: Deployment) -> None:
    """Others published on top of it, so that it is served; what is computed in its place comes out equal."""
    DeltaTable(str(trial.landing("numbers"))).update({"value": "n * 9"}, predicate="n < 10")
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "test", "test")
    published_on_top_of_what_is_to_be_adopted(trial)
    trial.model("copy", COPY.replace("value", "value + 1 as value"))
    with trial.opened() as workspace:
        apply(workspace)
    trial.model("copy", COPY)
    assert trial.run().failed == 0
    wanted = [(n, n * (9 if n < 10 else 7)) for n in range(60)]
    assert trial.rows("copy") == wanted
    assert trial.rows("child") == [(n, value + 1) for n, value in wanted]


def test_without_that_no_consumer_computes_with_its_rows(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: everything up to the newest commit counts as audited."""
    monkeypatch.setattr(runtime_audit, "unadopted", lambda *_: [])
    with pytest.raises(AssertionError):
        test_a_commit_that_was_still_to_be_adopted_is_audited_when_its_task_is_gone(trial)


@pytest.mark.parametrize(("start", "end"), [(35, 45), (42, 45), (12, 17)])
def test_damage_across_the_edge_of_a_commit_that_is_adopted_later_is_repaired_on_both_sides(
    trial: Deployment, start: int, end: int
) -> None:
    trial.land("numbers", range(40, 60))
    with pytest.raises(Killed):
        trial.run("copy", step=Fault("delta committed", raising(Killed())))
    DeltaTable(trial.place("copy")).delete(f"n >= {start} and n < {end}")
    assert trial.run().failed == 0
    trial.run()
    assert is_exact(trial, 60)
    assert trial.run().tasks == 0


def test_control_a_commit_that_is_asked_about_once_hides_what_is_covered_later(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_audit, "_key", lambda table_id, commit, _: f"foreign:{table_id}:{commit.version}")
    with pytest.raises(AssertionError):
        test_damage_across_the_edge_of_a_commit_that_is_adopted_later_is_repaired_on_both_sides(trial, 35, 45)


def test_rows_where_nothing_is_covered_are_taken_out_also_when_somebody_published_on_top_of_them(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(trial.place("copy"), FAR)
    with monkeypatch.context() as patch:
        patch.setattr(runtime_run, "audit", lambda *_: ())
        trial.land("numbers", range(40, 60))
        trial.run()
    assert trial.rows("copy") != numbers(60)  # they are served: nobody has looked
    notes = Heard()
    trial.run(progress=notes)
    assert any("were removed" in one for one in notes.notes)
    trial.run()
    assert is_exact(trial, 60)


def test_rows_where_nothing_is_covered_wait_for_a_commit_that_is_still_to_be_adopted(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands above them, others published on top of it, and nobody has looked in between."""
    commit(trial.place("copy"), FAR)
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "test", "test", rows_unknown=True)
    DeltaTable(str(trial.landing("numbers"))).update({"value": "n * 9"}, predicate="n < 10")
    with monkeypatch.context() as patch:
        patch.setattr(runtime_run, "audit", lambda *_: ())
        published_on_top_of_what_is_to_be_adopted(trial)
    for _ in range(3):
        assert trial.run().failed == 0
    wanted = [(n, n * (9 if n < 10 else 7)) for n in range(60)]
    assert trial.rows("copy") == newest(trial, "copy") == wanted


def test_control_audited_up_to_that_commit_they_stay(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_audit, "audited_upto", lambda latest, pending, _: min([latest + 1, *pending]) - 1)
    with pytest.raises(AssertionError):
        test_rows_where_nothing_is_covered_wait_for_a_commit_that_is_still_to_be_adopted(trial, monkeypatch)


def damaged_under_an_attempt(trial: Deployment, at: str) -> None:
    """Somebody changes rows, and is noticed, while an attempt that knows what was stored computes the same again."""

    def damage() -> None:
        DeltaTable(trial.place("copy")).update({"value": "-5"}, predicate="n = 3")
        with trial.opened() as other:
            look(other)

    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "test", "test")
    trial.run("copy", step=Fault(at, damage))


@pytest.mark.parametrize("at", ["intended", "staged"])
def test_damage_that_is_noticed_during_an_attempt_is_repaired_although_the_attempt_found_equal_rows(
    trial: Deployment, at: str
) -> None:
    damaged_under_an_attempt(trial, at)
    trial.run()
    assert is_exact(trial)
    assert trial.run().tasks == 0


def test_control_by_a_digest_from_before_the_damage_it_stays(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publication, "_forget_digests", lambda *_: None)
    with pytest.raises(AssertionError):
        test_damage_that_is_noticed_during_an_attempt_is_repaired_although_the_attempt_found_equal_rows(
            trial, "intended"
        )


def test_damage_to_a_commit_that_is_adopted_afterwards_is_repaired(trial: Deployment) -> None:
    DeltaTable(str(trial.landing("numbers"))).update({"value": "n * 7 + 1"}, predicate="n = 5")
    with pytest.raises(Killed):
        trial.run("copy", step=Fault("delta committed", raising(Killed())))
    DeltaTable(trial.place("copy")).update({"value": "-5"}, predicate="n = 3")
    with trial.opened() as other:
        look(other)
    for _ in range(2):
        assert trial.run().failed == 0
    assert trial.rows("copy") == newest(trial, "copy") == [(n, n * 7 + (n == 5)) for n in range(40)]


def test_a_table_without_new_commits_is_not_opened(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_table = runtime_audit.open_table

    def noted(location: str, **given: Any) -> object:
        opened.append(location)
        return open_table(location, **given)

    trial.run()
    monkeypatch.setattr(runtime_audit, "open_table", noted)
    with trial.opened() as workspace:
        assert look(workspace) == []
        assert opened == []
        DeltaTable(trial.place("copy")).update({"value": "-1"}, predicate="n = 33")
        look(workspace)
    assert opened == [trial.place("copy")]
    trial.run()
    assert is_exact(trial)


def test_control_a_log_that_is_taken_for_ended_hides_what_others_wrote(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_audit, "ends_at", lambda *_: True)
    DeltaTable(trial.place("copy")).update({"value": "-1"}, predicate="n = 33")
    trial.run()
    assert not is_exact(trial)
