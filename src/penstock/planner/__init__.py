"""Decides what to compute, from what was observed, and says why."""

from penstock.planner.cadence import Cadence, following
from penstock.planner.consumers import affected, offered
from penstock.planner.coverage import Coverage, invalidated, published
from penstock.planner.explain import Explanation, explain
from penstock.planner.observation import Input, Observation, Verdict, Wait
from penstock.planner.plan import Decision, permanent_gaps, plan, recheck
from penstock.planner.ready import gaps, ready
from penstock.planner.selection import Pattern, Selection

__all__ = [
    "Cadence",
    "Coverage",
    "Decision",
    "Explanation",
    "Input",
    "Observation",
    "Pattern",
    "Selection",
    "Verdict",
    "Wait",
    "affected",
    "explain",
    "following",
    "gaps",
    "invalidated",
    "offered",
    "permanent_gaps",
    "plan",
    "published",
    "ready",
    "recheck",
]
