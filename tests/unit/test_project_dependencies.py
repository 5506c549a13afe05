"""What do models read, and do they fit together?"""

from __future__ import annotations

from pathlib import Path

import pytest
from written_project import CONFIG, ORDERS, SHOP, front, mistakes, model, one_model, read

from penstock.values.models import Dependency


def test_s1_12_and_s1_5_declared_dependencies_mix_names_groups_and_mappings(tmp_path: Path) -> None:
    keys = """interval: 1h
position: at
dependencies:
  - "{{external}}.orders"
  - [raw.a, {model: "{{ external }}.b", before: 1 day}]
  - {model: customers, optional: true, on_change: ignore, finality: 1 hour}
  - {model: "{{transformation}}.hourly", before: 1 hour, after: 10 minutes}
"""
    files = {
        **SHOP,
        "models/transformations/m.sql": front(keys),
        "models/external/a.yml": "location: x\nposition: at\n",
        "models/external/b.yml": "location: x\nposition: at\n",
        "models/external/customers.yml": "location: x\n",
    }
    found = model(read(tmp_path, files), "shop.m")
    assert found.dependencies == (
        (Dependency("raw.orders"),),
        (Dependency("raw.a"), Dependency("raw.b", before=86400)),
        (Dependency("raw.customers", optional=True, finality=3600),),
        (Dependency("shop.hourly", before=3600, after=600),),
    )


def test_s1_5_changing_the_default_database_re_points_dependencies(tmp_path: Path) -> None:
    query = "select ordered_at as at from {{ ref('{{external}}.orders') }}"
    files = one_model("interval: 1h\nposition: at\ndependencies: ['{{external}}.orders']\n", query)
    assert model(read(tmp_path, files), "shop.m").dependencies == ((Dependency("raw.orders"),),)
    moved = {**files, "penstock.yml": CONFIG.replace("raw", "lake")}
    assert model(read(tmp_path, moved), "shop.m").dependencies == ((Dependency("lake.orders"),),)


def test_a_ref_that_is_not_declared_is_added_and_a_gate_may_stay_unread(tmp_path: Path) -> None:
    files = {
        **one_model("interval: 1h\nposition: at\ndependencies: [raw.gate]\n"),
        "models/external/gate.yml": "location: x\nposition: at\n",
    }
    assert model(read(tmp_path, files), "shop.m").dependencies == (
        (Dependency("raw.gate"),),
        (Dependency("raw.orders"),),
    )


def test_a_ref_is_found_in_whatever_branch_it_stands(tmp_path: Path) -> None:
    old, new = "{{ ref('raw.old') }}", "{{ ref(self.database and 'orders') }}"
    query = f"select ordered_at as at from {{% if bounds.start < 0 %}}{old}{{% else %}}{new}{{% endif %}}"
    files = {
        **one_model("interval: 1h\nposition: at\n", query),
        "models/external/old.yml": "location: x\nposition: at\n",
    }
    assert [d.model for d in model(read(tmp_path, files), "shop.m").inputs] == ["raw.old", "raw.orders"]


def test_a_bare_table_must_be_unique(tmp_path: Path) -> None:
    files = {
        **one_model("interval: 1h\nposition: at\n", "select ordered_at as at from {{ ref('orders') }}"),
        "models/external/other.yml": "location: x\ndatabase: lake\ntable: orders\nposition: at\n",
    }
    assert "'orders' means more than one table: lake.orders, raw.orders" in mistakes(tmp_path, files)[0]


def test_s0_20_an_unknown_dependency_names_both_ends_and_the_nearest(tmp_path: Path) -> None:
    files = one_model(
        "interval: 1h\nposition: at\ndependencies:\n  - raw.ordrs\n", "select at from {{ ref('raw.odrers') }}"
    )
    assert mistakes(tmp_path, files) == [
        "models/transformations/m.sql:5: shop.m depends on 'raw.ordrs', but there is no model 'raw.ordrs'; "
        "did you mean 'raw.orders'?",
        "models/transformations/m.sql:7: shop.m depends on 'raw.odrers', but there is no model 'raw.odrers'; "
        "did you mean 'raw.orders'?",
    ]


def test_s0_6_a_cycle_is_an_error_that_names_its_edges(tmp_path: Path) -> None:
    def reading(other: str) -> str:
        return front("interval: 1h\nposition: at\n", f"select at from {{{{ ref('{other}') }}}}")

    models = {"a": "b", "b": "c", "c": "a", "p": "q", "q": "p", "self": "self"}
    files = {"penstock.yml": CONFIG} | {
        f"models/transformations/{name}.sql": reading(other) for name, other in models.items()
    }
    assert mistakes(tmp_path, files) == [
        "models/transformations/a.sql:5: these models depend on each other: shop.a -> shop.b -> shop.c -> shop.a",
        "models/transformations/p.sql:5: these models depend on each other: shop.p -> shop.q -> shop.p",
        "models/transformations/self.sql:5: shop.self depends on itself",
    ]


BLOCKS = {
    "penstock.yml": CONFIG,
    "models/external/orders.yml": ORDERS,
    "models/external/blocks.yml": "location: x\nposition: n\naxis: block\n",
}


def test_an_interval_model_takes_the_axis_of_what_it_reads(tmp_path: Path) -> None:
    files = {
        **BLOCKS,
        "models/transformations/a.sql": front("interval: 100\nposition: n\n", "select n from {{ ref('blocks') }}"),
        "models/transformations/b.sql": front("interval: 1000\nposition: n\n", "select n from {{ ref('a') }}"),
    }
    project = read(tmp_path, files)
    assert (model(project, "shop.a").axis, model(project, "shop.b").axis) == ("block", "block")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            "interval: 100\nposition: n\n",
            "m.sql:5: shop.m reads raw.blocks on the axis 'block' and raw.orders on 'second'; they must agree",
        ),
        (
            "interval: 100\nposition: n\naxis: block\n",
            "m.sql:4: shop.m is on the axis 'block', but raw.orders is on 'second'",
        ),
    ],
)
def test_axes_must_agree(tmp_path: Path, keys: str, said: str) -> None:
    query = "select a.n from {{ ref('blocks') }} a join {{ ref('orders') }} o on true"
    found = mistakes(tmp_path, {**BLOCKS, "models/transformations/m.sql": front(keys, query)})
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "key",
    [
        "interval: 1 hour",
        "interval: {max: 1h, min: 0}",
        "interval: 10\nfill: {buffer: 1m}",
        "interval: 10\ndependencies: [{model: blocks, before: 1h}]",
        "interval: 10\nlimits: {min: 2026-01-01}",
    ],
)
def test_units_of_time_are_for_the_axis_second(tmp_path: Path, key: str) -> None:
    files = {
        **BLOCKS,
        "models/transformations/m.sql": front(f"{key}\nposition: n\n", "select n from {{ ref('blocks') }}"),
    }
    found = mistakes(tmp_path, files)
    assert len(found) == 1
    assert "the axis" in found[0]


@pytest.mark.parametrize(
    ("dependencies", "limits", "good"),
    [
        ("[customers]", "", False),
        ("[customers]", "limits: {min: 3600}\n", False),
        ("[customers]", "limits: {min: 3600, max: 7200}\n", True),
        ("[{model: orders, optional: true}]", "", False),
        ("[[orders, customers]]", "", False),
        ("[customers, orders]", "", True),
    ],
)
def test_b54_a_model_with_no_positioned_input_needs_both_limits(
    tmp_path: Path, dependencies: str, limits: str, good: bool
) -> None:
    keys = f"interval: 1h\nposition: at\n{limits}dependencies: {dependencies}\n"
    files = {
        "penstock.yml": CONFIG,
        "models/external/orders.yml": ORDERS,
        "models/external/customers.yml": "location: x\n",
        "models/transformations/m.sql": front(keys, "select {{ bounds.start_time }} as at"),
    }
    if good:
        assert read(tmp_path, files)
    else:
        assert "set limits.min and limits.max" in mistakes(tmp_path, files)[0]


def test_b27_a_disabled_model_is_left_out_and_its_dependents_are_named(tmp_path: Path) -> None:
    files = {**SHOP, "penstock.yml": CONFIG + "overrides: {raw.orders: {enabled: false}}\n"}
    assert mistakes(tmp_path, files) == [
        "models/transformations/hourly.sql:6: shop.hourly depends on raw.orders, which is disabled"
    ]


def test_b27_a_disabled_member_of_an_or_group_is_dropped(tmp_path: Path) -> None:
    keys = "interval: 1h\nposition: at\ndependencies: [[raw.off, raw.orders]]\n"
    files = {
        **one_model(keys, "select ordered_at as at from {{ ref('raw.off') }}"),
        "models/external/off.yml": "position: ordered_at\nenabled: false\n",
    }
    found = model(read(tmp_path, files), "shop.m")
    assert found.dependencies == ((Dependency("raw.orders"),),)
    assert found.stand_ins == {"raw.off": "raw.orders"}
    assert found.widens
