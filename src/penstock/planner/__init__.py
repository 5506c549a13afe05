"""Decides what to compute, from what was observed, and says why."""
