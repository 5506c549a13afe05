"""Is a dynamic table to be refreshed now?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.planner.dynamic.lag import due_at
from penstock.planner.dynamic.snapshots import Held, same_snapshot, same_table
from penstock.planner.readiness.observation import ReadinessCheck, Wait
from penstock.values.models import DynamicModel
from penstock.values.tasks import WHOLE, Frontier, Order, Pin


@dataclass(frozen=True, slots=True)
class RefreshObservation:
    """All that the decision depends on."""

    model: DynamicModel
    now: datetime
    snapshots: Frontier | Held
    """What a refresh would read."""
    missing: Mapping[str, str]
    """By input that cannot be read: why."""
    made_from: Frontier | None
    """What the stored rows were made from; None: it was never built."""
    fresh: datetime | None
    """The moment that the stored rows are of."""
    target_lag: int | None
    """In seconds, its consumers considered; None: it is refreshed when somebody asks."""
    takes_seconds: float = 0.0
    """How long its refreshes usually take, and after them those of its consumers."""
    asked: bool = False
    """A rerun or an invalidation asks for all of it."""
    timed: bool = False
    """Its rows may change although no input has another snapshot: it reads the clock, or an input without a log."""
    in_flight: bool = False
    failed: bool = False
    cancelled: bool = False
    paused: bool = False
    suspended: str | None = None

    @property
    def stopped(self) -> str | None:
        """Why nothing of it is planned, whatever has changed."""
        return "paused" if self.paused else self.suspended


def changed_inputs(seen: RefreshObservation) -> tuple[str, ...]:
    """The inputs of which a refresh would read another snapshot than the stored rows were made from."""
    if isinstance(seen.snapshots, Held) or seen.made_from is None:
        return ()
    read = seen.made_from
    return tuple(
        dependency.model
        for dependency in seen.model.inputs
        if not same_snapshot(read.get(dependency.model), seen.snapshots.get(dependency.model))
    )


def rebuilt(seen: RefreshObservation) -> bool:
    """Whether a table that is built anew may take the place of the old one: it holds rows of the inputs of now."""
    if seen.made_from is None:
        return False
    now = {} if isinstance(seen.snapshots, Held) else seen.snapshots
    pairs = [(seen.made_from.get(dependency.model), now.get(dependency.model)) for dependency in seen.model.inputs]
    return all(read is not None and (pin is None or same_table(read, pin)) for read, pin in pairs)


def refresh(seen: RefreshObservation, asked_at: datetime | None = None) -> Order | Wait:
    """The order to refresh it, or why it waits. `asked_at`: a person wants it as fresh as it can be since then."""
    name = seen.model.name
    why_not = _obstacle(seen)
    if why_not is not None:
        return Wait(name, why_not, "refresh")
    reason = _reason(seen, asked_at)
    if reason is None:
        return Wait(name, "up to date: no input has changed since it was refreshed", "refresh")
    if asked_at is None and not seen.asked and (seen.made_from is not None or seen.model.by_hand):
        if seen.target_lag is None:
            return Wait(name, f"{reason}, but it is refreshed only when asked for: penstock run {name}", "refresh")
        until = due_at(seen.fresh, seen.target_lag, seen.takes_seconds)
        if until is not None and until > seen.now:
            return Wait(name, f"{reason}; its target lag lets it wait until {_utc(until)}", "refresh")
    choices = tuple(dependency.model for dependency in seen.model.inputs)
    return Order(name, "refresh", (WHOLE,), choices, reason)


def waits_until(seen: RefreshObservation) -> datetime | None:
    """When it is to be refreshed at the latest; None: it does not wait for that moment."""
    if seen.target_lag is None or not isinstance(refresh(seen), Wait):
        return None
    if _obstacle(seen) is not None or _reason(seen, None) is None:
        return None
    return due_at(seen.fresh, seen.target_lag, seen.takes_seconds)


def recheck_refresh(seen: RefreshObservation) -> Frontier | Wait:
    """What to read, right before an ordered refresh begins; `seen` must not hold the order itself."""
    why_not = _obstacle(seen)
    if why_not is not None or isinstance(seen.snapshots, Held):
        return Wait(seen.model.name, why_not or "", "refresh")
    return seen.snapshots


def refresh_checks(seen: RefreshObservation) -> tuple[ReadinessCheck, ...]:
    """One per input: the snapshot that was read, and the one that would be."""
    return tuple(_check(seen, dependency.model) for dependency in seen.model.inputs)


def _check(seen: RefreshObservation, name: str) -> ReadinessCheck:
    if name in seen.missing:
        return ReadinessCheck(name, "snapshot", "none", False, seen.missing[name])
    now = None if isinstance(seen.snapshots, Held) else seen.snapshots.get(name)
    read = (seen.made_from or {}).get(name)
    if read is None:
        return ReadinessCheck(name, "snapshot", _words(now), now is not None, "it has not been read yet")
    if isinstance(seen.snapshots, Held):
        return ReadinessCheck(name, "snapshot", _words(read), False, seen.snapshots.reason)
    if same_snapshot(read, now):
        return ReadinessCheck(name, "snapshot", _words(now), True, "not changed since it was read")
    if now is not None and not same_table(read, now):
        return ReadinessCheck(name, "snapshot", _words(now), True, "another table stands in its place")
    return ReadinessCheck(name, "snapshot", _words(now), True, f"changed since {_words(read)} was read")


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _words(pin: Pin | None) -> str:
    return "none" if pin is None or pin.snapshot is None else f"snapshot {pin.snapshot}"


def _obstacle(seen: RefreshObservation) -> str | None:
    """Why it cannot be refreshed, whatever has changed."""
    name = seen.model.name
    if seen.stopped is not None:
        return seen.stopped
    if seen.cancelled:
        return f"cancelled: it is not refreshed until penstock resume {name}"
    if seen.failed:
        return "failed: it is not tried again until its cause is fixed (see the failed tasks)"
    if seen.in_flight:
        return "already being refreshed"
    if seen.missing:
        return "; ".join(f"waiting for {parent}: {why}" for parent, why in sorted(seen.missing.items()))
    return seen.snapshots.reason if isinstance(seen.snapshots, Held) else None


def _reason(seen: RefreshObservation, asked_at: datetime | None) -> str | None:
    """Why its rows may be others now; None: they are not."""
    if seen.made_from is None:
        return "never built"
    if seen.asked:
        return "a rerun or an invalidation asked for it"
    changed = changed_inputs(seen)
    if changed:
        return f"{', '.join(changed)} changed"
    if seen.timed and (asked_at is None or seen.fresh is None or seen.fresh < asked_at):
        unseen = [name for name, pin in _would_read(seen).items() if pin.snapshot is None]
        return f"nothing tells whether {unseen[0]} changed" if unseen else "its query depends on the time"
    return None


def _would_read(seen: RefreshObservation) -> Frontier:
    """What a refresh would read; nothing while it cannot."""
    return {} if isinstance(seen.snapshots, Held) else seen.snapshots
