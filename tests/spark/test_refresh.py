"""Dynamic tables hold what their queries give at the snapshots they were made from, whatever their inputs go through."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deployment import Deployment
from refreshing import FEED, Tables

from penstock.engine.delta import DeltaEngine
from penstock.engine.refresh import changes
from penstock.engine.refresh.changed_rows import changed_rows
from penstock.engine.spark.session import Session, SparkSettings

ORDERS = {"id": "int", "customer": "int", "amount": "int"}
CUSTOMERS = {"id": "int", "region": "string"}
TOTALS = "select customer, sum(amount) as total, count(*) as n from [orders] group by customer"


@pytest.fixture
def tables(deployment: Deployment, session: Session) -> Tables:
    return Tables(deployment, session)


@pytest.fixture(params=[True, False], ids=["feed", "no-feed"])
def shop(tables: Tables, request: pytest.FixtureRequest) -> Tables:
    """Ten customers in two regions, two orders each; with and without a change feed."""
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


def test_rows_that_went_and_came_back_commit_nothing(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.define("on_top", "select total, count(*) as n from <totals> group by total")
    shop.refreshed()
    before = shop.commits("totals")
    shop.delete("orders", "customer = 5")
    shop.land("orders", (5, 5, 5), (15, 5, 15))
    how = shop.refreshed("totals")
    assert how.strategy == "no_data", how
    shop.change("orders", "id = 3", amount="4")
    shop.change("orders", "id = 13", amount="12")
    how = shop.refreshed("totals")
    assert (how.strategy, how.keys, how.written) == ("affected_keys", 1, 0)
    assert shop.commits("totals") == before
    assert len(shop.deployment.tasks("on_top")) == 1


def test_a_source_that_is_only_arranged_anew_costs_no_spark_job(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    shop.land("orders", (90, 3, 1))
    shop.refreshed()
    shop.table("orders").optimize.compact()
    shop.vacuum("orders")
    how = shop.refreshed()
    assert (how.strategy, how.jobs) == ("no_data", 0), how
    shop.land("orders", (91, 3, 1))
    assert shop.refreshed().strategy == "affected_keys"


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


def test_a_source_that_is_restored_or_overwritten_is_followed(shop: Tables) -> None:
    shop.define("totals", TOTALS, refresh_strategy="affected_keys")
    shop.refreshed()
    version = shop.table("orders").version()
    shop.delete("orders", "customer in (1, 2)")
    shop.change("orders", "id = 5", customer="7")
    shop.refreshed()
    shop.table("orders").restore(version)
    assert shop.refreshed().keys == 4
    shop.overwrite("orders", *[(n, n % 10, n) for n in range(20) if n != 8], (90, 50, 1))
    assert shop.refreshed().keys == 2


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


def test_changes_whose_files_are_gone_are_read_whole(shop: Tables) -> None:
    shop.define("totals", TOTALS)
    shop.refreshed()
    shop.change("orders", "id = 5", customer="7")
    shop.change("orders", "id = 6", customer="7")
    shop.vacuum("orders")
    for file in Path(shop.at("orders")).glob("_change_data/*"):
        file.unlink()
    how = shop.refreshed()
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


def test_a_new_column_is_there_where_all_are_selected(shop: Tables) -> None:
    shop.define("all_of_it", "select * from [orders] where customer < 5")
    shop.define("totals", TOTALS)
    shop.refreshed()
    shop.schemas["orders"] = shop.schemas["orders"].append(pa.field("note", pa.string()))
    write_deltalake(shop.at("orders"), shop.rows("orders", [(90, 3, 1, "new")]), mode="append", schema_mode="merge")
    shop.refreshed()
    assert shop.how("totals").strategy == "affected_keys"
    assert "note" in shop.stored("all_of_it").column_names
    shop.change("orders", "id = 3", note="'later'")
    shop.refreshed()


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
    assert tables.how("totals").keys == 3
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
    tables.delete("facts", "v in (1, 12)")
    tables.land("facts", (second, 6), (third, 7))
    tables.refreshed()
    tables.change("facts", "v in (4, 7)", v="8")
    tables.refreshed()
