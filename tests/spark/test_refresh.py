"""Dynamic tables hold what their queries give at the snapshots they were made from, whatever befalls their inputs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import combinations
from pathlib import Path
from random import Random
from shutil import rmtree

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment
from dynamic_fuzz import INPUTS, START, Author, State, first_state, next_move
from faults import Fault, Killed, raising
from fuzzing import FUZZ
from refreshing import FEED, Row, Tables

from penstock.answers.query import query
from penstock.answers.verify import verify
from penstock.engine.commit import publish
from penstock.engine.delta import DeltaEngine
from penstock.engine.refresh import changes, holding_files
from penstock.engine.refresh.change_views import ChangeViews
from penstock.engine.refresh.changed_rows import FewRows, changed_rows
from penstock.engine.rows.multisets import WEIGHT
from penstock.engine.spark.session import Session, SparkSettings
from penstock.planner.dynamic.program import Incremental, understand
from penstock.planner.dynamic.snapshots import Snapshots
from penstock.values.intervals import IntervalSet
from penstock.values.tasks import WHOLE, Commit

ORDERS = {"id": "int", "customer": "int", "amount": "int"}
CUSTOMERS = {"id": "int", "region": "string"}
APPEND = "interval: 20\nupdate_strategy: append\nunique_key: [value, n]\n"
TOTALS = "select customer, sum(amount) as total, count(*) as n from [orders] group by customer"


@pytest.fixture
def tables(deployment: Deployment, session: Session) -> Tables:
    return Tables(deployment, session)


@pytest.fixture
def shop(tables: Tables) -> Tables:
    """Ten customers in two regions, two orders each."""
    return opened(tables)


@pytest.fixture(params=[True, False], ids=["feed", "no-feed"])
def any_shop(tables: Tables, request: pytest.FixtureRequest) -> Tables:
    """The same with and without a change feed."""
    return opened(tables, feed=request.param)


def opened(tables: Tables, *, feed: bool = True) -> Tables:
    properties = FEED if feed else {"delta.enableChangeDataFeed": "false"}
    tables.source("orders", ORDERS, **properties)
    tables.source("customers", CUSTOMERS, **properties)
    tables.land("orders", *[(n, n % 10, n) for n in range(20)])
    tables.land("customers", *[(n, "EU" if n % 2 else "US") for n in range(10)])
    return tables


REGIONS = (
    "select c.region, sum(o.amount) as total, count(*) as n "
    "from [orders] o join [customers] c on o.customer = c.id group by c.region"
)
Change = Callable[[Tables], object]
CASES: dict[str, tuple[str, tuple[Change, ...]]] = {
    "a key that moves": (TOTALS, (lambda t: t.change("orders", "id = 5", customer="7"),)),
    "a delete that empties a group": (TOTALS, (lambda t: t.delete("orders", "customer = 3"),)),
    "NULL as a key": (
        TOTALS,
        (
            lambda t: t.change("orders", "id in (4, 7)", customer="null"),
            lambda t: (t.land("orders", (90, None, 5)), t.delete("orders", "id = 7")),
            lambda t: t.delete("orders", "customer is null"),
        ),
    ),
    "both sides change at once": (
        REGIONS,
        (lambda t: (t.delete("orders", "id in (1, 11)"), t.change("customers", "id = 1", region="'AU'")),),
    ),
    "a row of a dimension changes": (
        "select o.id, o.amount, c.region from [orders] o join [customers] c on o.customer = c.id",
        (
            lambda t: t.change("customers", "id = 2", region="'AU'"),
            lambda t: (t.delete("customers", "id = 4"), t.land("customers", (3, "twice"))),
        ),
    ),
    "the row of a left join without a partner": (
        "select c.id, c.region, o.id as ordered from [customers] c left join [orders] o on o.customer = c.id",
        (
            lambda t: t.delete("orders", "customer = 3"),
            lambda t: (t.land("customers", (77, "EU")), t.land("orders", (91, 3, 1), (92, 77, 2))),
        ),
    ),
    "a full join": (
        "select c.id, o.id as ordered, o.amount from [customers] c full join [orders] o on o.customer = c.id",
        (
            lambda t: (t.land("orders", (91, 70, 1), (92, None, 2)), t.land("customers", (71, "EU"), (None, "US"))),
            lambda t: (t.delete("customers", "id = 5 or id is null"), t.land("customers", (70, "EU"))),
        ),
    ),
    "NOT IN with a NULL": (
        "select id, amount from [orders] where customer not in (select id from [customers] where region = 'US')",
        (
            lambda t: t.land("customers", (None, "US")),
            lambda t: (t.delete("customers", "id is null"), t.land("orders", (90, None, 1))),
            lambda t: t.delete("customers", "region = 'US'"),
        ),
    ),
    "NOT EXISTS": (
        "select id, amount from [orders] o where not exists "
        "(select 1 from [customers] c where c.id = o.customer and region = 'US')",
        (
            lambda t: (t.change("customers", "id = 2", region="'EU'"), t.land("orders", (90, None, 1))),
            lambda t: (t.delete("customers", "id = 4"), t.change("customers", "id = 1", region="'US'")),
        ),
    ),
    "an aggregate of an aggregate": (
        "select n, count(*) as customers from (select count(*) as n from [orders] group by customer) group by n",
        (
            lambda t: t.land("orders", (90, 3, 1)),
            lambda t: (t.delete("orders", "customer = 4"), t.change("orders", "id = 5", customer="6")),
        ),
    ),
    "a sum that becomes 0, and one of NULLs": (
        TOTALS,
        (
            lambda t: t.change("orders", "customer = 3", amount="case when id = 3 then 5 else -5 end"),
            lambda t: (t.change("orders", "customer = 4", amount="null"), t.change("orders", "id = 5", amount="null")),
        ),
    ),
    "a group key that is not selected": (
        "select sum(amount) as total from [orders] group by customer",
        (lambda t: (t.change("orders", "id = 5", customer="7"), t.delete("orders", "customer = 3")),),
    ),
    "a group key by its place": (
        "select customer % 4 as part, max(amount) as most from [orders] group by 1 having count(*) > 1",
        (lambda t: (t.change("orders", "id = 5", customer="7"), t.delete("orders", "customer = 3")),),
    ),
    "duplicates in a projection": (
        "select customer % 3 as part, amount % 2 as odd from [orders]",
        (
            lambda t: t.delete("orders", "id = 4"),
            lambda t: (
                t.land("orders", (90, 3, 1), (91, 3, 1), (92, None, None)),
                t.change("orders", "id=7", amount="8"),
            ),
        ),
    ),
    "several rows of one key": (
        "select customer, id, row_number() over (partition by customer order by amount, id) as place from [orders]",
        (
            lambda t: t.land("orders", (90, 3, -1), (91, None, 4)),
            lambda t: (t.delete("orders", "id = 3"), t.change("orders", "id = 5", customer="null")),
        ),
    ),
    "window partitions that overlap": (
        "select id, sum(amount) over (partition by customer) as a, sum(amount) over (partition by id % 3) as b "
        "from [orders]",
        (lambda t: (t.change("orders", "id = 5", customer="7"), t.delete("orders", "id = 8")),),
    ),
    "the newest row of each key": (
        "select customer, id, amount from [orders] "
        "qualify row_number() over (partition by customer order by amount desc, id) = 1",
        (lambda t: (t.delete("orders", "id = 15"), t.land("orders", (90, 3, 99), (91, 33, 1))),),
    ),
    "distinct values": (
        "select distinct customer % 4 as part, amount % 2 as odd from [orders]",
        (lambda t: (t.delete("orders", "amount % 2 = 1 and customer = 5"), t.land("orders", (90, None, 1))),),
    ),
    "a union of two kinds": (
        "select id, 'order' as kind from [orders] union all select id, region from [customers]",
        (lambda t: (t.delete("orders", "id = 4"), t.land("customers", (4, "order"), (None, None))),),
    ),
    "all but some": (
        "select customer from [orders] except all select id from [customers] where region = 'EU'",
        (lambda t: (t.land("orders", (90, 1, 1), (91, None, 1)), t.delete("customers", "id in (3, 4)")),),
    ),
    "one row for all": (
        "select count(*) as n, sum(amount) as total, max(customer) as last from [orders] where amount > 3",
        (lambda t: t.land("orders", (90, 1, 1), (91, None, 50)), lambda t: t.delete("orders")),
    ),
    "a scalar subquery": (
        "select id, (select max(amount) from [orders] o where o.customer = c.id) as most from [customers] c",
        (
            lambda t: (
                t.delete("orders", "customer = 3"),
                t.land("orders", (90, 4, 99)),
                t.land("customers", (50, "x")),
            ),
        ),
    ),
    "exploded arrays": (
        "select customer, part from [orders] lateral view explode(array(amount % 2, amount % 3)) as part",
        (lambda t: (t.delete("orders", "id = 4"), t.land("orders", (90, None, 7))),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_stay_right_in(tables: Tables, name: str) -> None:
    shop = opened(tables, feed=list(CASES).index(name) % 2 == 0)
    query, changes = CASES[name]
    shop.define("made", query, refresh_strategy="affected_keys")
    assert shop.refreshed().code == "NEVER_BUILT"
    for change in changes:
        change(shop)
        how = shop.refreshed()
        assert how.strategy == "affected_keys", how
        assert how.jobs <= 4, how
    shop.newest("made")
    assert shop.run().tasks == 0


# what happens to sources


def test_rows_that_went_and_came_back_commit_nothing(any_shop: Tables) -> None:
    any_shop.define("totals", TOTALS)
    any_shop.define("on_top", "select total, count(*) as n from <totals> group by total")
    any_shop.refreshed()
    before = any_shop.commits("totals")
    any_shop.delete("orders", "customer = 5")
    any_shop.land("orders", (5, 5, 5), (15, 5, 15))
    how = any_shop.refreshed("totals")
    assert how.strategy == "no_data", how
    any_shop.change("orders", "id = 3", amount="4")
    any_shop.change("orders", "id = 13", amount="12")
    how = any_shop.refreshed("totals")
    assert (how.strategy, how.keys, how.written) == ("affected_keys", 1, 0)
    assert any_shop.commits("totals") == before
    assert len(any_shop.deployment.tasks("on_top")) == 1


def test_a_source_that_is_only_arranged_anew_costs_no_spark_job(any_shop: Tables) -> None:
    any_shop.define("totals", TOTALS)
    any_shop.refreshed()
    any_shop.land("orders", (90, 3, 1))
    any_shop.refreshed()
    any_shop.table("orders").optimize.compact()
    any_shop.vacuum("orders")
    how = any_shop.refreshed()
    assert (how.strategy, how.jobs) == ("no_data", 0), how
    any_shop.land("orders", (91, 3, 1))
    assert any_shop.refreshed().strategy == "affected_keys"


def test_no_spark_is_started_where_nothing_changed(shop: Tables, tmp_path: Path) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    shop.table("orders").optimize.z_order(["customer"])
    shop.land("customers", (99, "not read"))
    shop.deployment.engine = DeltaEngine(Session(SparkSettings(cache=tmp_path, environ=os.environ, quick=True)), {})  # type: ignore[assignment]
    done = shop.run()
    assert (done.tasks, done.spark_started, done.spark_jobs) == (1, False, 0)
    assert shop.how("totals").strategy == "no_data"
    shop.newest("totals")


def test_a_source_that_is_restored_or_overwritten_is_followed(any_shop: Tables) -> None:
    any_shop.define("totals", TOTALS, refresh_strategy="affected_keys")
    any_shop.refreshed()
    version = any_shop.table("orders").version()
    any_shop.delete("orders", "customer in (1, 2)")
    any_shop.change("orders", "id = 5", customer="7")
    any_shop.refreshed()
    any_shop.table("orders").restore(version)
    assert any_shop.refreshed().keys == 4
    any_shop.overwrite("orders", *[(n, n % 10, n) for n in range(20) if n != 8], (90, 50, 1))
    assert any_shop.refreshed().keys == 2


def test_a_source_that_was_replaced_by_another_table_is_read_whole(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.define("sorry", TOTALS, refresh_strategy="affected_keys")
    shop.refreshed()
    kept = shop.visible("sorry")
    rmtree(shop.at("orders"))
    shop.source("orders", ORDERS)
    shop.land("orders", (1, 1, 1), (2, None, 2))
    done = shop.run()
    assert done.failed == 1
    assert "TABLE_REPLACED" in str(shop.task("sorry").error)
    assert shop.visible("sorry") == kept
    shop.check("totals")
    shop.newest("totals")
    how = shop.how("totals")
    assert (how.strategy, how.code) == ("reinitialize", "TABLE_REPLACED")


def test_changes_whose_files_are_gone_are_read_whole(any_shop: Tables) -> None:
    any_shop.define("totals", TOTALS)
    any_shop.refreshed()
    any_shop.change("orders", "id = 5", customer="7")
    any_shop.change("orders", "id = 6", customer="7")
    any_shop.vacuum("orders")
    for file in Path(any_shop.at("orders")).glob("_change_data/*"):
        file.unlink()
    how = any_shop.refreshed()
    assert (how.strategy, how.code) == ("reinitialize", "HISTORY_EXPIRED"), how


def test_changes_whose_commits_are_gone_are_read_whole(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    for n in range(3):
        shop.land("orders", (90 + n, 3, 1))
    shop.table("orders").create_checkpoint()
    shop.land("orders", (95, 4, 1))
    log = Path(shop.at("orders"), "_delta_log")
    for version in range(shop.table("orders").version() - 1):
        (log / f"{version:020}.json").unlink()
    how = shop.refreshed()
    assert (how.strategy, how.code) == ("reinitialize", "HISTORY_EXPIRED"), how


def test_an_old_state_that_is_gone_is_not_asked_for(tables: Tables) -> None:
    """An aggregate of aggregates needs its input as it was: a vacuum may have taken that, and not the change."""
    shop = opened(tables, feed=False)
    shop.define("sizes", CASES["an aggregate of an aggregate"][0])
    shop.land("orders", (90, 3, 1))
    shop.refreshed()
    shop.table("orders").optimize.compact()
    shop.vacuum("orders")
    shop.land("orders", (91, 3, 1))
    how = shop.refreshed()
    assert (how.strategy, how.code) == ("reinitialize", "HISTORY_EXPIRED"), how


def test_a_new_column_is_there_where_all_are_selected(any_shop: Tables) -> None:
    any_shop.define("all_of_it", "select * from [orders] where customer < 5")
    any_shop.define("totals", TOTALS)
    any_shop.refreshed()
    any_shop.schemas["orders"] = any_shop.schemas["orders"].append(pa.field("note", pa.string()))
    write_deltalake(
        any_shop.at("orders"), any_shop.rows("orders", [(90, 3, 1, "new")]), mode="append", schema_mode="merge"
    )
    any_shop.refreshed()
    assert any_shop.how("totals").strategy == "affected_keys"
    assert "note" in any_shop.stored("all_of_it").column_names
    any_shop.change("orders", "id = 3", note="'later'")
    any_shop.refreshed()


def test_a_column_of_another_type_is_left_to_its_author(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    wider = shop.rows("orders", [(n, n % 10, n) for n in range(20)])
    wider = wider.set_column(1, "customer", wider.column("customer").cast(pa.int64()))
    write_deltalake(shop.at("orders"), wider, mode="overwrite", schema_mode="overwrite")
    assert "column customer is bigint in the query and int in the table" in shop.run().errors[0]
    shop.check("totals")
    shop.define("totals", TOTALS.replace("select customer", "select cast(customer as int) as customer"))
    how = shop.refreshed()
    assert (how.strategy, how.code) == ("full", "NEVER_BUILT"), how


def test_deletion_vectors_are_told_apart(tables: Tables) -> None:
    shop = opened(tables, feed=False)
    shop.define("totals", TOTALS)
    shop.spark("alter table [orders] set tblproperties ('delta.enableDeletionVectors' = 'true')")
    shop.refreshed()
    shop.spark("delete from [orders] where id in (3, 4)")
    how = shop.refreshed()
    assert (how.strategy, how.keys) == ("affected_keys", 2), how
    shop.spark("update [orders] set customer = 8 where id = 5")
    assert shop.refreshed().keys == 2


def test_a_partitioned_source_is_read_by_partitions(tables: Tables) -> None:
    tables.source("orders", {**ORDERS, "day": "date"}, by=["day"], **FEED)
    days = [date(2026, 1, 1), date(2026, 1, 2), None]
    tables.land("orders", *[(n, n % 10, n, days[n % 3]) for n in range(30)])
    tables.define(
        "days",
        "select day, count(*) as n, sum(amount) as total from [orders] group by day",
        refresh_strategy="affected_keys",
    )
    tables.define("totals", TOTALS)
    tables.refreshed()
    tables.delete("orders", "day = '2026-01-02'")
    tables.land("orders", (90, 3, 1, None), (91, 3, 1, date(2026, 1, 3)))
    assert tables.refreshed("days").keys == 3


def test_many_changed_rows_are_read_by_spark(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "changed_rows", partial(changed_rows, most_bytes=0))
    tables.source("orders", {**ORDERS, "day": "date"}, by=["day"], **FEED)
    tables.source("customers", CUSTOMERS, **FEED)
    tables.land("orders", *[(n, n % 10, n, date(2026, 1, 1 + n % 2)) for n in range(20)])
    tables.land("customers", *[(n, "EU" if n % 2 else "US") for n in range(10)])
    tables.define("totals", TOTALS, refresh_strategy="affected_keys")
    tables.define("regions", "select region, count(*) as n from [customers] group by region", cardinality_threshold=1)
    tables.refreshed()
    tables.change("orders", "id = 5", customer="7")
    tables.change("customers", "id = 5", region="'AU'")
    tables.delete("customers", "id = 4")
    tables.land("orders", (90, None, 1, None))
    tables.refreshed()
    # rows that were only copied count too: nobody nets so many
    assert (tables.how("totals").keys or 0) >= 3
    assert tables.how("regions").strategy == "full"
    tables.change("orders", "id = 6", customer="7")
    tables.vacuum("orders")
    rmtree(tables.at("orders") + "/_change_data")
    done = tables.run()
    assert "HISTORY_EXPIRED" in done.errors[0]


def test_late_rows_are_rows_like_any_other(tables: Tables) -> None:
    tables.source("events", {"at": "timestamp", "kind": "int"}, **FEED)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    tables.land("events", *[(start + timedelta(hours=n), n % 3) for n in range(48)])
    tables.define("days", "select date_trunc('day', at) as day, kind, count(*) as n from [events] group by all")
    tables.refreshed()
    tables.land("events", (start + timedelta(days=30), 1))
    tables.refreshed()
    tables.land("events", (start + timedelta(hours=1, microseconds=1), 2), (start - timedelta(days=400), 1))
    assert tables.refreshed().keys == 2


def test_time_alone_takes_rows_away(tables: Tables) -> None:
    tables.source("events", {"at": "timestamp", "kind": "int"}, **FEED)
    now = datetime.now(UTC)
    tables.land("events", *[(now - timedelta(minutes=n * 30), n % 3) for n in range(24)])
    window = "select kind, count(*) as n from [events] where at >= now() - interval 6 hours group by kind"
    tables.define("last", window, cardinality_threshold=1)
    tables.refreshed()
    tables.deployment.move_clock(3700)
    before = tables.visible("last")
    how = tables.refreshed()
    assert (how.strategy, how.keys) == ("affected_keys", 2), how
    assert tables.visible("last") != before
    tables.deployment.move_clock(3701)
    assert tables.refreshed().strategy == "no_data"


def test_what_reads_the_clock_takes_over_when_it_is_rebuilt(tables: Tables) -> None:
    tables.source("events", {"at": "timestamp", "kind": "int"}, **FEED)
    now = datetime.now(UTC)
    tables.land("events", *[(now - timedelta(minutes=n * 30), n % 3) for n in range(24)])
    tables.define("last", "select kind from [events] where at >= now() - interval 6 hours")
    tables.define("on_top", "select kind, count(*) as n from <last> group by kind")
    tables.refreshed()
    tables.define("last", "select kind, 1 as one from [events] where at >= now() - interval 2 hours")
    tables.refreshed()
    tables.deployment.move_clock(3700)
    tables.refreshed()
    assert tables.how("on_top").code != "NEVER_BUILT"


def test_a_rebuild_that_fails_leaves_the_old_table_in_place(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.define("on_top", "select total, count(*) as n from <totals> group by total")
    shop.refreshed()
    kept = shop.visible("totals"), shop.visible("on_top")
    shop.define("totals", "select cast(concat('x', customer) as int) as customer, 1 as total from [orders]")
    assert shop.run().failed
    assert (shop.visible("totals"), shop.visible("on_top")) == kept
    shop.define("totals", TOTALS.replace("count(*)", "count(*) + 1"))
    shop.refreshed()
    assert shop.visible("totals") != kept[0]


# keys of all types, and the files that can hold them


KINDS: dict[str, tuple[object, ...]] = {
    "bigint": (2**62 + 1, -5, 2**62 + 3),
    "string": ("é" * 70, "", "é" * 69 + "a"),
    "boolean": (True, False, None),
    "date": (date(2026, 1, 1), date(1500, 1, 1), date(9999, 12, 31)),
    "timestamp": (
        datetime(2026, 1, 1, 0, 0, 0, 123456, UTC),
        datetime(1950, 1, 1, 0, 0, 0, 999999, UTC),
        datetime(2026, 1, 1, 0, 0, 0, 123999, UTC),
    ),
    "timestamp_ntz": tuple(
        map(datetime.fromisoformat, ("2026-01-01 00:00:00.123456", "0001-01-01", "2026-01-01 00:00:00.999999"))
    ),
    "decimal": (Decimal("12345678901234567890123.1234567"), Decimal("-0.0000001"), Decimal("123456789012.1234549")),
    "binary": (b"a\xff", b"", b"a"),
    "double": (0.1 + 0.2, float("nan"), -0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_key_finds_its_rows_again(tables: Tables, kind: str) -> None:
    first, second, third = KINDS[kind]
    tables.source("facts", {"k": kind, "v": "int"}, **FEED)
    tables.define(
        "sums", "select k, sum(v) as total, count(*) as n from [facts] group by k", refresh_strategy="affected_keys"
    )
    tables.define("shown", "select k, v from [facts] where v <> 4", refresh_strategy="affected_keys")
    for number, value in enumerate((first, second, third, None)):
        tables.land("facts", (value, number), (value, 10 + number))
    tables.refreshed()
    tables.land("facts", (first, 4), (None, 5))
    tables.land("facts", (second, 6), (third, 7))
    tables.refreshed()
    tables.delete("facts", "v in (1, 12)")
    tables.refreshed()
    tables.change("facts", "v in (4, 7)", v="8")
    tables.refreshed()


# which way, and why


HUNDRED = tuple((n, n, n) for n in range(100))


@pytest.fixture
def hundred(tables: Tables) -> Tables:
    """A hundred customers with an order each."""
    tables.source("orders", ORDERS, **FEED)
    tables.land("orders", *HUNDRED)
    return tables


def test_above_the_threshold_all_keys_are_computed(hundred: Tables) -> None:
    hundred.define("totals", TOTALS)
    hundred.define("eager", TOTALS, cardinality_threshold=0.1, refresh_strategy="affected_keys")
    hundred.refreshed()
    hundred.change("orders", "id < 29", amount="amount + 1")
    hundred.refreshed()
    assert hundred.how("totals").reason == "FEW_KEYS: 29 of 100 keys changed"
    hundred.change("orders", "id < 31", amount="amount + 1")
    hundred.refreshed()
    how = hundred.how("totals")
    assert (how.strategy, how.keys) == ("full", None)
    assert how.reason == "OVER_THRESHOLD: 31 of 100 keys changed, more than cardinality_threshold 0.3"
    assert how.jobs <= 3
    assert hundred.how("eager").reason == "FORCED: 31 of 100 keys changed, and refresh_strategy asks for it"


def test_a_full_refresh_with_equal_rows_commits_nothing_and_wakes_nobody(shop: Tables) -> None:
    shop.define("totals", TOTALS, refresh_strategy="full")
    shop.define("on_top", "select total, count(*) as n from <totals> group by total")
    shop.refreshed()
    before = shop.commits("totals")
    shop.change("orders", "id = 3", amount="13")
    shop.change("orders", "id = 13 and amount = 13", amount="3")
    how = shop.refreshed("totals")
    assert (how.strategy, how.code, how.written) == ("full", "FORCED", 0)
    assert shop.commits("totals") == before
    assert len(shop.deployment.tasks("on_top")) == 1
    shop.change("orders", "id = 3", amount="14")
    shop.refreshed()
    assert shop.commits("totals") == before + 1
    assert len(shop.deployment.tasks("on_top")) == 2


def test_what_may_not_be_done_in_full_fails_and_keeps_its_rows(shop: Tables) -> None:
    limited = "select id, amount from [orders] order by amount desc, id limit 3"
    shop.define("strict", limited, refresh_strategy="incremental")
    shop.define("relaxed", limited)
    shop.define("totals", TOTALS, refresh_strategy="incremental")
    shop.refreshed()
    kept = shop.visible("strict")
    shop.land("orders", (90, 3, 99))
    done = shop.run()
    code = shop.how("relaxed").code
    assert done.failed == 1
    assert code in done.errors[0]
    assert shop.how("relaxed").strategy == "full"
    assert shop.how("totals").strategy == "affected_keys"
    assert shop.visible("strict") == kept
    shop.check()
    shop.newest("relaxed")
    shop.newest("totals")


def test_a_rerun_computes_all_rows_once(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    before = shop.commits("totals")
    with shop.deployment.opened() as workspace:
        whole = IntervalSet.of((WHOLE,))
        workspace.state.invalidations.invalidate(
            "t.totals", whole, "why", "test", rows_unknown=True, cause="rerun", row_filter=None
        )
    how = shop.refreshed()
    assert (how.strategy, how.code, how.written) == ("full", "ASKED", 0)
    assert shop.commits("totals") == before
    assert shop.run().tasks == 0


SHAPES = ("an aggregate of an aggregate", "a full join", "duplicates in a projection", "window partitions that overlap")


def test_every_strategy_gives_the_same_rows_and_it_is_all_the_same_how_often(shop: Tables) -> None:
    ways = ("auto", "full", "affected_keys", "incremental")
    for number, shape in enumerate(SHAPES):
        query = CASES[shape][0]
        shop.define(f"m{number}", query, refresh_strategy=ways[number])
        shop.define(f"m{number}_full", query, refresh_strategy="full")
        shop.define(f"m{number}_late", query, refresh_strategy=ways[-number - 1], target_lag="manual")
    late = [f"m{number}_late" for number in range(len(SHAPES))]
    assert not shop.run().failed
    assert not shop.run(*late).failed
    accepted: dict[str, list[int]] = {}
    turns: tuple[Callable[[], object], ...] = (
        lambda: (shop.delete("orders", "customer = 3"), shop.land("customers", (70, "AU"))),
        lambda: (
            shop.change("orders", "id = 5", customer="70"),
            shop.land("orders", (90, None, 4), (91, 3, 1)),
        ),
        lambda: (shop.change("orders", "id = 5", customer="5"), shop.delete("customers", "id = 70")),
    )
    for change in turns:
        for number in range(len(SHAPES)):
            snapshot = shop.deployment.current(f"m{number}").accepted_snapshot
            accepted.setdefault(f"m{number}", []).append(snapshot or 0)
        change()
        assert not shop.run().failed
    assert not shop.run(*late).failed
    shop.check()
    for number in range(len(SHAPES)):
        rows = shop.visible(f"m{number}")
        assert rows == shop.visible(f"m{number}_full") == shop.visible(f"m{number}_late")
    for model, snapshots in accepted.items():
        last = shop.deployment.current(model).accepted_snapshot or 0
        for before, after in combinations([*snapshots, last], 2):
            assert shop.told(model, before, after) == shop.differ(model, before, after), (model, before, after)


def test_only_files_that_can_hold_a_key_are_read_and_written(hundred: Tables) -> None:
    hundred.define("totals", TOTALS, refresh_strategy="affected_keys")
    hundred.refreshed()
    for start in (100, 200):
        hundred.land("orders", *[(n, n, n) for n in range(start, start + 100)])
        assert hundred.refreshed().keys == 100
    before = hundred.files("totals")
    assert len(before) == 3
    hundred.change("orders", "id = 250", amount="7")
    how = hundred.refreshed()
    assert (how.keys, how.jobs <= 3, how.written) == (1, True, 100)
    assert len(hundred.files("totals") & before) == 2
    assert hundred.task("totals").cost.rows_read == 100
    hundred.delete("orders", "id = 250")
    hundred.refreshed()
    hundred.land("orders", (250, None, 8), (250, 250, 8))
    hundred.refreshed()


def test_rows_that_another_program_changed_are_never_accepted(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.define("busy", "select count(*) as n from [orders] where amount > 15")
    shop.refreshed()
    DeltaTable(shop.deployment.place("totals")).update(predicate="customer = 3", updates={"total": "7"})
    DeltaTable(shop.deployment.place("busy")).update(updates={"n": "7"})
    shop.change("orders", "id = 4", amount="14")
    shop.change("orders", "id = 14 and amount = 14", amount="4")
    shop.refreshed()
    assert (shop.how("totals").strategy, shop.how("totals").code) == ("full", "ASKED")
    rmtree(shop.deployment.place("totals"))
    shop.land("orders", (90, 3, 1))
    shop.run()
    assert (shop.how("totals").strategy, shop.how("totals").code) == ("full", "NEVER_BUILT")
    shop.check()


def test_a_commit_that_was_never_accepted_is_no_basis(shop: Tables) -> None:
    """Its task was given up; its rows are those of a source that has changed back since."""
    shop.define("totals", TOTALS)
    shop.refreshed()
    shop.change("orders", "id = 4", customer="5")
    with pytest.raises(Killed):
        shop.run(step=Fault("delta committed", raising(Killed())))
    shop.deployment.execute(
        "update task set state = 'superseded', finished_at = clock_timestamp(), lease_token = null, "
        "lease_expires_at = null, worker = null where state = 'running'"
    )
    shop.change("orders", "id = 4", customer="4")
    shop.land("orders", (90, 3, 0))
    shop.delete("orders", "id = 90")
    shop.refreshed()


def test_any_name_of_a_column_will_do(shop: Tables) -> None:
    shop.define("odd", "select customer as `a.b`, id % 3 as `Key_0`, count(*) as `n` from [orders] group by all")
    shop.define("keys", "select `Key_0` as key_0, sum(n) as `sum.n` from <odd> group by 1")
    shop.refreshed()
    shop.change("orders", "id = 5", customer="null")
    shop.refreshed()


# graphs


def test_rows_that_only_came_are_appended_each_as_often_as_it_came(
    shop: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.define("details", "select id, amount from [orders] where amount >= 0")
    shop.refreshed()
    before = set(DeltaTable(shop.deployment.place("details")).file_uris())
    shop.land("orders", (90, 3, 1), (90, 3, 1), (91, 4, 2), (92, 4, -2))
    shop.refreshed()
    assert (shop.how("details").strategy, shop.how("details").code) == ("append", "ONLY_NEW_ROWS")
    assert before < set(DeltaTable(shop.deployment.place("details")).file_uris()), "no stored file was touched"
    shop.check()

    def once(self: ChangeViews, view: str, change: FewRows) -> None:
        self.show({view: change})

    monkeypatch.setattr(ChangeViews, "show_added", once)
    shop.land("orders", (93, 3, 1), (93, 3, 1))
    with pytest.raises(AssertionError):
        shop.refreshed()
        shop.check()


def test_where_spark_refuses_a_program_all_rows_are_computed(shop: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.define("totals", TOTALS)
    shop.define("forced", TOTALS, refresh_strategy="affected_keys")
    shop.refreshed()
    monkeypatch.setattr(Incremental, "rows", lambda *_: "select 1 / 0 as nothing, no_such_column")
    shop.change("orders", "id = 5", customer="7")
    done = shop.run()
    assert [error.split(" ", 1)[0] for error in done.errors] == ["t.forced"]
    assert "PROGRAM_FAILED" in done.errors[0]
    assert (shop.how("totals").strategy, shop.how("totals").code) == ("full", "PROGRAM_FAILED")
    shop.newest("totals")


def test_what_has_no_log_is_read_as_it_is(shop: Tables) -> None:
    place = Path(shop.deployment.root, "names.csv")
    shop.deployment.write("models/external/names.yml", f'location: "{place}"\nformat: csv\n')
    place.write_text("5\n")
    shop.define("kept", "select id from [orders] where id in (select cast(_c0 as int) from [names])")
    del shop.queries["t.kept"]
    assert not shop.run().failed
    assert list(shop.visible("kept")) == [(5,)]
    place.write_text("5\n6\n")  # nothing tells of it
    assert not shop.run().failed
    assert (shop.how("kept").strategy, shop.how("kept").code) == ("reinitialize", "NOT_READABLE")
    assert sorted(shop.visible("kept")) == [(5,), (6,)]


def test_what_lands_after_it_was_observed_is_in_the_next_refresh(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    for step in ("planned", "keys found", "staged", "delta committed"):
        shop.land("orders", (90, 3, 1))
        assert not shop.run(step=Fault(step, lambda: shop.land("orders", (91, 4, 1)))).failed
        shop.check()
        with pytest.raises(AssertionError):
            shop.newest("totals")
        assert shop.refreshed().strategy == "affected_keys"
        shop.newest("totals")


def test_tables_with_a_common_consumer_read_one_snapshot(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.define("counts", "select customer, count(*) as orders from [orders] where amount > 2 group by customer")
    shop.define(
        "both",
        "select t.customer, t.total, c.orders, n.id from <totals> t left join <counts> c on t.customer <=> c.customer "
        "left join [orders] n on n.customer = t.customer",
    )
    shop.refreshed()
    for step in ("planned", "staged", "recorded"):
        shop.change("orders", "id = 5", customer="7 - customer + 5")
        fault = Fault(step, lambda: (shop.land("orders", (90, 3, 1), (91, None, 1)), shop.delete("orders", "id = 8")))
        assert not shop.run(step=fault).failed
        shop.check()
        shop.refreshed()
        shop.newest("both")


def test_a_chain_follows_and_hidden_columns_stay_hidden(shop: Tables) -> None:
    shop.define("sums", "select sum(amount) as total from [orders] group by customer")
    shop.define("all_of_it", "select * from <sums>")
    shop.define("sizes", "select total % 3 as kind, count(*) as n from <all_of_it> group by total % 3")
    shop.refreshed()
    assert any(name.startswith("__penstock_") for name in shop.stored("sums").column_names)
    assert shop.stored("all_of_it").column_names == ["total"]
    shop.change("orders", "id = 5", customer="null", amount="33")
    shop.refreshed()
    with shop.deployment.opened() as workspace:
        rows = query(workspace, "select * from t.sums order by total limit 1")
        assert list(rows[0]) == ["total"]
        models = tuple(workspace.project.graph.dynamic_models)
        verified = verify(workspace, models, None, None)
        assert [(model.differences, model.unverifiable) for model in verified.models] == [(0, [])] * 3
    DeltaTable(shop.deployment.place("sums")).delete("total > 20")
    with shop.deployment.opened() as workspace:
        assert verify(workspace, models, None, None).differences == 0, "the accepted snapshot is compared"
    shop.land("orders", (90, 3, 1))
    assert shop.refreshed().code == "ASKED", "the audit has seen it, and asks for all rows"


def test_a_late_row_of_an_interval_model_arrives_once(tables: Tables) -> None:
    deployment = tables.deployment
    deployment.source("numbers")
    deployment.model("copy", "select n, value from {{ ref('raw.numbers') }}")
    deployment.model("facts", "select n, value from {{ ref('raw.numbers') }}", APPEND)
    tables.define("parts", "select n % 4 as part, count(*) as rows, sum(value) as total from <copy> group by n % 4")
    tables.define("sevens", "select n % 7 as part, count(*) as rows from <facts> group by n % 7")
    deployment.land("numbers", range(40))
    tables.refreshed()
    before = {name: len(deployment.tasks(name)) for name in ("parts", "sevens")}
    deployment.land("numbers", [3, 41, 42])
    tables.refreshed()
    deployment.run()
    deployment.land("numbers", range(43, 60), factor=9)
    tables.refreshed()
    assert sum(tables.visible("parts").values()) == 4
    counted = sum(int(str(row[1])) for row in tables.visible("parts"))
    assert counted == len(deployment.rows("copy"))
    assert sum(int(str(row[1])) for row in tables.visible("sevens")) == len(deployment.rows("facts"))
    assert [len(deployment.tasks(name)) - before[name] for name in before] == [2, 1], "3 is stored already"


def test_an_interval_model_is_computed_again_when_its_dynamic_lookup_changes(tables: Tables) -> None:
    deployment = tables.deployment
    deployment.source("numbers")
    tables.source("prices", {"part": "int", "price": "int"}, **FEED)
    tables.define("best", "select part, max(price) as price from [prices] group by part")
    deployment.model(
        "priced",
        "select n, price from {{ ref('raw.numbers') }} a left join {{ ref('t.best') }} b on a.n % 2 = b.part",
        "interval: 10\ndependencies: [raw.numbers, {model: t.best, on_change: rerun}]",
    )
    deployment.land("numbers", range(20))
    tables.land("prices", (0, 10), (1, 20))
    tables.refreshed()
    assert deployment.rows("priced") == [(n, 20 if n % 2 else 10) for n in range(20)]
    before = len(deployment.tasks("priced"))
    tables.land("prices", (0, 9))
    tables.refreshed()
    assert len(deployment.tasks("priced")) == before
    tables.land("prices", (1, 30))
    tables.refreshed()
    assert deployment.rows("priced") == [(n, 30 if n % 2 else 10) for n in range(20)]
    assert len(deployment.tasks("priced")) > before


# crashes


STEPS = ("planned", "keys found", "written", "staged", "locked", "head loaded", "delta committed", "recorded")


@pytest.mark.parametrize("step", [*STEPS, "published"])
def test_a_refresh_that_is_killed_is_made_once(tables: Tables, step: str) -> None:
    shop = opened(tables)
    shop.define("totals", TOTALS)
    shop.define("on_top", "select total, count(*) as n from <totals> group by total")
    shop.refreshed()
    before = shop.commits("totals")
    shop.change("orders", "id = 5", customer="null")
    with pytest.raises(Killed):
        shop.run("totals", step=Fault(step, raising(Killed())))
    shop.check("totals")
    shop.land("orders", (90, 3, 1))
    shop.refreshed()
    shop.run()
    shop.newest("totals")
    adopted = step in ("delta committed", "recorded")
    assert [task.strategy for task in shop.deployment.tasks("totals")][1] == ("adopted" if adopted else "affected_keys")
    assert shop.commits("totals") == before + (2 if adopted or step == "published" else 1)
    assert shop.deployment.most_commits("totals") == 1


def test_a_second_worker_that_wakes_up_between_staging_and_publishing_does_it(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    before = shop.commits("totals")
    shop.change("orders", "id = 5", customer="null")

    def taken_over() -> None:
        shop.deployment.execute(
            "update task set lease_expires_at = clock_timestamp() - interval '1 hour' where state = 'running'"
        )
        assert not shop.run().failed

    shop.run(step=Fault("staged", taken_over))
    shop.check()
    shop.newest("totals")
    assert shop.commits("totals") == before + 1
    assert shop.task("totals").attempt == 2


# what would go wrong otherwise


def wrong(tables: Tables) -> bool:
    """Whether Spark says so."""
    assert not tables.run().failed
    try:
        tables.check()
    except AssertionError:
        return True
    return False


def test_control_of_a_row_that_changed_both_images_count(hundred: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    def came(*args: object, **options: object) -> object:
        answer = changed_rows(*args, **options)  # type: ignore[arg-type]
        assert isinstance(answer, FewRows)
        return replace(answer, rows=answer.rows.filter(pc.greater(answer.rows.column(WEIGHT), 0)))

    hundred.define("totals", TOTALS)
    hundred.refreshed()
    monkeypatch.setattr(changes, "changed_rows", came)
    hundred.change("orders", "id = 5", customer="7")
    assert wrong(hundred)


def test_control_null_is_a_key_like_any_other(hundred: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.classic.column import Column

    hundred.define("totals", TOTALS)
    hundred.land("orders", (200, None, 1))
    hundred.refreshed()
    monkeypatch.setattr(Column, "eqNullSafe", Column.__eq__)
    hundred.land("orders", (201, None, 1))
    assert wrong(hundred)


@pytest.mark.parametrize("kind", ["timestamp", "decimal"])
def test_control_statistics_are_less_exact_than_keys(
    tables: Tables, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding_files, "_outwards", lambda bound, _: bound)
    with pytest.raises(AssertionError, match="too many"):
        test_every_type_of_key_finds_its_rows_again(tables, kind)


def test_control_what_was_read_is_recorded_and_not_what_is_there(
    hundred: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = publish._outcome

    def latest(*args: object, **options: object) -> Commit:
        made = outcome(*args, **options)  # type: ignore[arg-type]
        newest = {
            name: replace(pin, snapshot=DeltaTable(pin.location).version()) for name, pin in made.frontier.items()
        }
        return replace(made, frontier=newest)

    def step(label: str) -> None:
        if label == "written":
            hundred.land("orders", (90, 3, 1))
        if label == "published":
            raise Killed

    monkeypatch.setattr(publish, "_outcome", latest)
    hundred.define("totals", TOTALS)
    with pytest.raises(Killed):
        hundred.run(step=step)
    hundred.newest("totals")
    with pytest.raises(AssertionError):
        hundred.check()


def test_control_a_parent_is_not_read_at_another_snapshot_than_its_inputs(
    shop: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.define("totals", TOTALS)
    shop.define("both", "select t.total, o.id from <totals> t left join [orders] o on o.customer <=> t.customer")
    shop.refreshed()
    shop.change("orders", "id = 5", customer="7")
    shop.run("both")
    shop.check()
    monkeypatch.setattr(Snapshots, "_through_parents", lambda *_: {})
    shop.run("both")
    with pytest.raises(AssertionError):
        shop.check("both")


# any query, any change


def applied(tables: Tables, name: str, old: tuple[Row, ...], new: tuple[Row, ...], chance: Random) -> None:
    """From one state of a source to the next, in one commit or in several."""
    if chance.random() < 0.3 or old == new:
        tables.overwrite(name, *new)
        return
    was, now = Counter(old), Counter(new)
    gone = [row for row in was if was[row] > now[row]]
    for row in gone:
        tables.delete(name, " and ".join(map(_equals, tables.schemas[name].names, row)))
    came = [row for row in now for _ in range(now[row] - (0 if row in gone else was[row]))]
    for part in (came[::2], came[1::2]):
        if part:
            tables.land(name, *part)


def _equals(column: str, value: object) -> str:
    if value is None:
        return f"{column} is null"
    if isinstance(value, datetime):
        return f"{column} = arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, None)')"
    return f"{column} = {value!r}"


def queries(tables: Tables, chance: Random, count: int) -> Iterator[tuple[str, bool]]:
    """Some of different shapes that Spark understands, and whether they can be kept by keys."""
    shapes: set[str] = set()
    with tables.session.attempt("test/queries") as attempt:
        for name, columns in INPUTS.items():
            listed = ", ".join(f"cast(null as {kind}) as {own}" for own, kind in columns.items())
            attempt.spark.sql(f"select {listed}").createOrReplaceTempView(name)
        while len(shapes) < count:
            made = Author(chance).query(chance.choice([0, 1, 1, 2])).sql
            program = understand(made, INPUTS)
            shape = program.shape if isinstance(program, Incremental) else program.code
            try:
                attempt.spark.sql(made)
            except Exception:  # not every random query means something to Spark
                continue
            if shape not in shapes:
                shapes.add(shape)
                yield re.sub(r"\b([abc]) (q\d+)\b", r"[\1] \2", made), isinstance(program, Incremental)


@pytest.mark.parametrize("seed", range(2 * (20 if FUZZ else 1)))
def test_random_queries_stay_right_through_random_changes(tables: Tables, seed: int) -> None:
    chance = Random(seed)
    later = datetime.now(UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0) - START.replace(tzinfo=None)

    def shifted(state: State, name: str) -> tuple[Row, ...]:
        return tuple(tuple(v + later if isinstance(v, datetime) else v for v in row) for row in state[name])

    state = first_state(chance)
    for name, columns in INPUTS.items():
        tables.source(name, columns, **(FEED if chance.random() < 0.5 else {"delta.enableChangeDataFeed": "false"}))
        tables.land(name, *shifted(state, name))
    for number, (text, by_keys) in enumerate(queries(tables, chance, 7)):
        ways = ["affected_keys", "affected_keys", "auto", "full"] if by_keys else ["auto"]
        tables.define(f"m{number}", text, refresh_strategy=chance.choice(ways))
    now = START
    for turn in range(4):
        done = tables.run()
        assert not done.failed, (seed, turn, done.errors)
        for model, text in tables.queries.items():
            try:
                tables.check(model.removeprefix("t."))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, turn {turn}: {error}\n{text}") from error
        move = next_move(chance, state, now)
        for name in move.changed:
            applied(tables, name, shifted(state, name), shifted(move.new, name), chance)
        state, now = move.new, move.now
        tables.deployment.move_clock((now - START).total_seconds())
