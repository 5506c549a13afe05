"""How hard do property tests try? `make fuzz` asks for more."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FUZZ = os.environ.get("PENSTOCK_FUZZ") == "1"
settings.register_profile("fuzz", max_examples=1000, deadline=None)


def effort(examples: int, steps: int = 30) -> settings:
    """So many examples, twenty times as many when fuzzing; printed blobs can be replayed."""
    return settings(
        max_examples=examples * 20 if FUZZ else examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
