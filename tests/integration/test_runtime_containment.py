"""Whatever comes out of the engine ends one attempt: never the process, and no task stays "running"."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from arrow_engine import ArrowEngine
from deltalake.exceptions import DeltaError
from deployment import Deployment
from faults import Fault, Killed, raising
from py4j.protocol import Py4JNetworkError
from residents import everything, serving, until

from penstock.engine.commit.publish import FileSetChanged
from penstock.engine.observe import changes, delta_log
from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import HeadMoved, Job, Step
from penstock.errors import EngineError, SourceError
from penstock.runtime.observe import audit
from penstock.runtime.place.workspace import apply
from penstock.runtime.plan import reconcile as settling
from penstock.runtime.plan import scheduler
from penstock.runtime.process import containment
from penstock.runtime.serve import roles
from penstock.runtime.serve import run as running
from penstock.runtime.work import attempt as work
from penstock.runtime.work import heartbeat
from penstock.runtime.work.jobs import ChunksAtInputs
from penstock.values.records import StateView
from penstock.values.tasks import Commit

Panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
"""What a fault inside delta-rs raises: the real class is made anew by every library, and no module has it."""
KINDS: tuple[BaseException, ...] = (
    pa.ArrowInvalid("Parquet magic bytes not found in footer"),
    DeltaError("a generic error"),
    Py4JNetworkError("answer from Java side is empty"),
    OSError(28, "No space left on device"),
    KeyError("num_records"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    SourceError("the store gave no answer"),
    Panic("called `Option::unwrap()` on a `None` value"),
)
SEAMS = ("render", "stage", "restage", "prepare", "publish", "after publish", "find_commit", "checkpoint")
MODELS = {f"{seam.replace(' ', '_')}_{n}": (seam, n) for seam, n in product(SEAMS, range(len(KINDS)))}
SOME = {name: case for name, case in MODELS.items() if (SEAMS.index(case[0]) + case[1]) % 5 == 0}
"""Every seam and every kind, though not with each other: processes that stay contain by the same function."""
SQL = "select n, value from {{ ref('raw.numbers') }}"


class Throwing(ArrowEngine):
    """Raises what a model's name says, where it says it, the first time it comes there."""

    def __init__(self) -> None:
        super().__init__()
        self.thrown: set[tuple[str, str]] = set()

    def throw(self, model: str, *seams: str) -> None:
        name = model.removeprefix("t.")
        seam, kind = MODELS.get(name, ("", 0))
        if seam in seams and (name, seam) not in self.thrown:
            self.thrown.add((name, seam))
            raise KINDS[kind]

    def first(self, model: str, seam: str) -> bool:
        """Whether it is there for the first time, without anything being raised."""
        key = (f"{model}, on the way", seam)
        return key not in self.thrown and not self.thrown.add(key)  # type: ignore[func-returns-value]

    def stage(self, job: Job, step: Step) -> Staged:
        self.throw(job.model, "stage")
        if "find_commit" in job.model and self.first(job.model, "stage"):
            raise EngineError("so that there is a second attempt")
        return super().stage(job, step)

    def restage(self, staged: Staged, step: Step) -> Staged:
        self.throw(staged.job.model, "restage")
        return super().restage(staged, step)

    def prepared(self, staged: Staged) -> Staged | FileSetChanged:
        self.throw(staged.job.model, "prepare")
        return super().prepared(staged)

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged | HeadMoved:
        self.throw(staged.job.model, "publish")
        if "restage" in staged.job.model and self.first(staged.job.model, "publish"):
            return FileSetChanged(0, ())
        found = super().publish(staged, step)
        self.throw(staged.job.model, "after publish")
        return found

    def find_commit(self, location: str, task: UUID) -> Commit | None:
        self.throw(_model_of(location), "find_commit")
        return super().find_commit(location, task)

    def checkpoint(self, location: str) -> None:
        self.throw(_model_of(location), "checkpoint")
        super().checkpoint(location)


def _model_of(location: str) -> str:
    return next(name for name in sorted(MODELS, key=len, reverse=True) if f"/{name}/" in f"{location}/")


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.land("numbers", range(10))
    return made


@pytest.fixture
def hostile(trial: Deployment, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Deployment:
    """One model for every kind of exception at every seam, or for some."""
    for name in request.param:
        trial.model(name, SQL, "interval: 10")
    trial.engine = engine = Throwing()
    rendered = work.job

    def job(resolver: object, wanted: ChunksAtInputs, *rest: object, **more: object) -> Job:
        engine.throw(wanted.order.model, "render")
        return rendered(resolver, wanted, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "job", job)
    return trial


def assert_all_is_well(trial: Deployment, models: Iterable[str]) -> None:
    """Every fault was one failed attempt of its own task, and the next attempt made it good."""
    engine = trial.engine
    assert isinstance(engine, Throwing)
    assert {name for name, _ in engine.thrown} >= set(models)
    tasks = {task.model.removeprefix("t."): task for task in trial.tasks()}
    with trial.opened() as workspace:
        attempts = workspace.state.history.attempts([task.id for task in tasks.values()])
    for name in models:
        (seam, kind), task = MODELS[name], tasks[name]
        assert task.state == "succeeded", name
        assert task.attempt == {"checkpoint": 1, "find_commit": 3}.get(seam, 2), name
        if seam != "checkpoint":
            failed = attempts[task.id][task.attempt - 2]
            assert failed.error_class == "engine"
            if not isinstance(KINDS[kind], SourceError):
                assert type(KINDS[kind]).__name__ in str(failed.error)
                assert "in throw\\n" in str(failed.log_tail), "the end of the traceback"


def done(models: Iterable[str]) -> Callable[[StateView], bool]:
    return lambda view: all(bool(view.current[f"t.{name}"].covered) for name in models)


def applied(trial: Deployment) -> None:
    with trial.opened() as workspace:
        apply(workspace)


@pytest.mark.parametrize("hostile", [MODELS], indirect=True, ids=[""])
def test_whatever_the_engine_raises_in_a_run_fails_its_attempt_only(hostile: Deployment) -> None:
    assert hostile.run().failed == 0
    assert_all_is_well(hostile, MODELS)


@pytest.mark.parametrize("hostile", [SOME], indirect=True, ids=[""])
def test_whatever_the_engine_raises_under_up_fails_its_attempt_only(hostile: Deployment) -> None:
    applied(hostile)
    with everything(hostile) as resident:
        until(hostile, done(SOME))
    assert resident.error is None
    assert_all_is_well(hostile, SOME)


@pytest.mark.parametrize("hostile", [SOME], indirect=True, ids=[""])
def test_whatever_the_engine_raises_in_a_worker_fails_its_attempt_only(hostile: Deployment) -> None:
    applied(hostile)
    with serving(hostile, roles.scheduler) as planning, serving(hostile, roles.worker) as working:
        until(hostile, done(SOME))
    assert (planning.error, working.error) == (None, None)
    assert_all_is_well(hostile, SOME)


def test_the_residents_meet_every_kind_and_every_seam() -> None:
    assert {seam for seam, _ in SOME.values()} == set(SEAMS)
    assert {kind for _, kind in SOME.values()} == set(range(len(KINDS)))


@pytest.mark.parametrize("hostile", [SOME], indirect=True, ids=[""])
def test_control_without_containment_one_bad_attempt_ends_the_run(
    hostile: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def through(error: BaseException, **_: object) -> object:
        raise error

    monkeypatch.setattr(work, "contained", through)
    with pytest.raises(tuple(type(kind) for kind in KINDS)):
        hostile.run()


@pytest.mark.parametrize("meant", [KeyboardInterrupt, SystemExit, Killed])
def test_what_is_meant_for_the_process_ends_it(trial: Deployment, meant: type[BaseException]) -> None:
    trial.model("copy", SQL, "interval: 10")
    with pytest.raises(meant):
        trial.run(step=Fault("computed", raising(meant())))


# a real one


@pytest.mark.parametrize("damage", ["overwritten", "cut", "gone"])
def test_one_bad_parquet_file_fails_its_own_model_and_the_others_are_built(trial: Deployment, damage: str) -> None:
    trial.model("facts", SQL, "interval: 10\nretries: 0\nupdate_strategy: append\nunique_key: [n]")
    trial.model("copy", SQL, "interval: 10")
    trial.run()
    for file in Path(trial.place("facts")).rglob("*.parquet"):
        match damage:
            case "overwritten":
                file.write_bytes(b"x" * file.stat().st_size)
            case "cut":
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            case _:
                file.unlink()
    trial.land("numbers", [5, *range(10, 20)])
    summary = trial.run()
    assert (summary.failed, trial.covered("copy").end) == (1, 20)
    (task,) = (task for task in trial.tasks("facts") if task.state != "succeeded")
    assert task.state == "dead"
    assert "cannot read" in str(task.error)
    assert ".parquet" in str(task.error)


# looking and planning


@contextmanager
def broken(monkeypatch: pytest.MonkeyPatch, place: object, name: str, when: Callable[..., bool]) -> Iterator[None]:
    """One function raises what nobody foresaw, for those arguments."""
    sound = getattr(place, name)

    def act(*args: object, **more: object) -> object:
        if when(*args, **more):
            raise KeyError("nobody foresaw this")
        return sound(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, act)
        yield


def two_families(trial: Deployment) -> None:
    trial.source("others")
    trial.land("others", range(10))
    trial.model("bad", SQL, "interval: 10")
    trial.model("good", "select n, value from {{ ref('raw.others') }}", "interval: 10")


def test_a_source_that_cannot_be_looked_at_keeps_its_error_to_itself(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_families(trial)
    with broken(monkeypatch, delta_log, "observe", lambda place, *_, **__: "numbers" in place):
        assert trial.run().failed == 0
        with everything(trial) as resident:
            view = until(trial, lambda view: "t.good" in view.current)
        assert resident.error is None
    assert trial.rows("good")
    assert "KeyError" in str(view.sources["raw.numbers"].error)


def test_changes_that_cannot_be_read_are_an_error_of_their_source(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_families(trial)
    trial.run()
    for name in ("numbers", "others"):
        trial.land(name, range(10, 20))
    with broken(monkeypatch, changes, "log_changes", lambda place, *_, **__: "numbers" in place):
        assert trial.run().failed == 0
    assert (trial.covered("good").end, trial.covered("bad").end) == (20, 10)
    trial.run()
    assert trial.covered("bad").end == 20, "no snapshot was kept without what changed up to it"


def test_a_table_that_cannot_be_audited_keeps_nobody_from_the_others(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_families(trial)
    trial.run()
    shutil.rmtree(Path(trial.place("good")) / "_delta_log")
    with broken(monkeypatch, audit, "open_table", lambda place, **_: "/bad" in place):
        assert trial.run().failed == 0
    assert len(trial.rows("good")) == 10, "it was found gone and made anew"


def test_a_model_that_cannot_be_planned_fails_alone(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    two_families(trial)
    is_bad: Callable[..., bool] = lambda seen, **_: seen.model.name == "t.bad"  # noqa: E731
    with broken(monkeypatch, running, "plan", is_bad):
        summary = trial.run()
    assert (summary.failed, summary.tasks) == (1, 1)
    assert "t.bad cannot be planned: KeyError" in summary.errors[0]
    trial.land("others", range(10, 20))
    with broken(monkeypatch, scheduler, "plan", is_bad), everything(trial) as resident:
        until(trial, lambda view: view.current["t.good"].covered.end == 20)
        assert not trial.covered("bad")
    assert resident.error is None


def test_a_rebuilt_table_that_cannot_be_compared_waits_and_planning_goes_on(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_families(trial)
    trial.run()
    trial.model("bad", SQL.replace("value", "value + 1 as value"), "interval: 10")
    trial.land("others", range(10, 20))
    with broken(monkeypatch, settling, "repairable", lambda seen: seen.model.name == "t.bad"):
        assert trial.run().failed == 0
    assert (trial.covered("good").end, trial.rows("bad")[1]) == (20, (1, 7))
    trial.run()
    assert trial.rows("bad")[1] == (1, 8)


def test_a_scan_that_fails_is_an_error_of_its_source_and_the_worker_goes_on(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_families(trial)
    (trial.root / "models/external/numbers.yml").unlink()
    trial.write(
        "models/external/numbers.sql",
        f'---\nlocation: "{trial.landing("numbers")}"\nposition: n\naxis: number\n---\n'
        "select min(n) as min, max(n) as max from {{ ref('raw.numbers') }}\n",
    )

    def scan_bounds(*_: object, **__: object) -> object:
        raise pa.ArrowInvalid("not a Parquet file")

    monkeypatch.setattr(trial.engine, "scan_bounds", scan_bounds)
    applied(trial)
    with everything(trial) as resident:
        view = until(
            trial, lambda view: "raw.numbers" in view.sources and view.sources["raw.numbers"].error is not None
        )
        until(trial, lambda view: bool(view.current["t.good"].covered))
    assert resident.error is None
    assert "ArrowInvalid" in str(view.sources["raw.numbers"].error)


def test_a_round_that_fails_is_reported_and_the_next_one_comes(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.model("copy", SQL, "interval: 10")
    applied(trial)
    times = iter([True])
    with broken(monkeypatch, scheduler, "due_slots", lambda *_: next(times, False)), everything(trial) as resident:
        until(trial, lambda view: bool(view.current["t.copy"].covered))
    assert resident.error is None


def test_a_cancel_that_fails_neither_ends_the_heartbeat_nor_keeps_the_task(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is lost while the attempt computes; ending its jobs fails, and another attempt finishes the task."""
    trial.model("copy", SQL, "interval: 10")
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.2)
    failed: list[UUID] = []

    def cancel(task: UUID, attempt: int) -> None:
        failed.append(task)
        raise Py4JNetworkError("Java is gone")

    monkeypatch.setattr(trial.engine, "cancel", cancel)
    taken = "update task set lease_token = gen_random_uuid() where state = 'running'"

    def lose() -> None:
        trial.execute(taken)
        deadline = 100
        while not failed and (deadline := deadline - 1):
            trial.execute("select pg_sleep(0.1)")
        trial.execute("update task set lease_expires_at = clock() - interval '1 s' where state = 'running'")

    applied(trial)
    with everything(trial, Fault("computed", lose)) as resident:
        until(trial, lambda view: bool(view.current["t.copy"].covered))
    assert failed
    assert resident.error is None


def test_a_traceback_is_kept_at_its_end() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise KeyError("there")

    try:
        deep(300)
    except KeyError as error:
        told = containment.contained(error)
    assert told.message == "KeyError: 'there'"
    assert told.hint is not None
