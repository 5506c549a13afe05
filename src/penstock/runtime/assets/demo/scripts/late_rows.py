"""Lands observations of blocks from 02:10 to 02:14, hours after those minutes were computed."""

from pathlib import Path

from penstock.runtime.place.demo import land_late

rows = land_late(Path(__file__).resolve().parents[1])
print(f"{rows} late rows landed in landing/beacon_blocks")  # noqa: T201
