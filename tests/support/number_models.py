"""Models over a table of numbers, by name: the query and what stands above it."""

from __future__ import annotations

MODELS = {
    "copy": ("select n, value from {{ ref('raw.numbers') }}", "interval: 10"),
    "buckets": (
        "select n - n % 10 as n, sum(value) as value from {{ ref('raw.numbers') }} group by 1",
        "interval: {max: 20, min: 1, align: 10}",
    ),
    "rolling": (
        "select a.n, sum(b.value) as value from {{ ref('t.copy') }} a "
        "join {{ ref('t.copy') }} b on b.n > a.n - 15 and b.n <= a.n group by a.n",
        "interval: 20\ndependencies: [{model: t.copy, before: 15}]",
    ),
    "totals": (
        "select {{ bounds.start }} as n, sum(value) as value from {{ ref('t.buckets') }} having count(*) > 0",
        "interval: 40",
    ),
}
