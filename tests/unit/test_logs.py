"""Are lines complete, parseable, free of secrets, and kept apart by thread?"""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.process import logs
from penstock.runtime.process.logs import TAIL_CHARACTERS, TAIL_LINES, attempt_log, configure, log, masked

SECRETS = [
    "postgresql://user:hunter2@host/db",
    "postgresql://:hunter2@host:5432/db?sslmode=require",
    "postgresql://user:hun@ter2:/hunter2@host/db",
    "cannot reach postgresql://user:hunter2@host/db: connection refused",
    "two: postgresql://a:hunter2@h1/db postgresql://b:hunter2@h2/db",
    "host=h user=u password=hunter2 dbname=d",
    "host=h password = 'hunter2 hunter2' dbname=d",
    "host=h password='hunter2 hunter2",
    "postgresql://user@host/db?password=hunter2&sslmode=require",
    "PGPASSWORD=hunter2 psql",
    '{"aws_secret_access_key": "hunter2 hunter2", "region": "eu"}',
    "AccountKey=hunter2==;EndpointSuffix=x",
    "spark.hadoop.fs.s3a.secret.key=hunter2",
]


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure("info", False, stream)
    yield stream
    configure("error", False, io.StringIO())


def parsed(line: str) -> tuple[str, str, dict[str, str]]:
    """Level, event and fields of a line."""
    found = re.fullmatch(r'(\S+Z) (\w+) +("(?:[^"\\]|\\.)*"|\S+)((?: \w+=(?:"(?:[^"\\]|\\.)*"|[^\s"]+))*)', line)
    assert found, line
    datetime.fromisoformat(found[1])
    fields = re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)', found[4])
    return found[2], unquoted(found[3]), {name: unquoted(value) for name, value in fields}


def unquoted(text: str) -> str:
    return json.loads(text) if text.startswith('"') else text


# lines


def test_a_line_has_a_moment_a_level_an_event_and_fields(printed: io.StringIO) -> None:
    log("task_succeeded", task=12, attempt=1, model="shop.orders", seconds=0.40004, written=True)
    line = printed.getvalue().removesuffix("\n")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line.split()[0])
    assert line.endswith("Z info  task_succeeded task=12 attempt=1 model=shop.orders seconds=0.4 written=true")


def test_a_json_line_keeps_the_types() -> None:
    stream = io.StringIO()
    configure("info", True, stream)
    log(
        "claimed", level="warning", task=12, scope=((0, 10), (20, 30)), who={"host": "a b"}, big=float("inf"), none=None
    )
    said = json.loads(stream.getvalue())
    assert datetime.fromisoformat(said.pop("at")).utcoffset() == timedelta(0)
    assert said == {
        "level": "warning",
        "event": "claimed",
        "task": 12,
        "scope": [[0, 10], [20, 30]],
        "who": {"host": "a b"},
        "big": "inf",
    }


def test_only_what_is_bad_enough_is_printed(printed: io.StringIO) -> None:
    log("small", level="debug")
    configure("warning", False, printed)
    log("usual")
    log("odd", level="warning")
    log("bad", level="error")
    assert [line.split()[1:3] for line in printed.getvalue().splitlines()] == [["warning", "odd"], ["error", "bad"]]


def test_to_configure_again_replaces_the_stream(printed: io.StringIO) -> None:
    other = io.StringIO()
    configure("info", False, other)
    log("once")
    assert printed.getvalue() == ""
    assert other.getvalue().count("once") == 1


texts = st.text(max_size=30) | st.text('ab "=\\\n\r\t\x00\x1b\x85\u2028\ud800é😀', max_size=12)


@given(st.dictionaries(st.sampled_from(["model", "error", "reason", "what"]), texts), texts.filter(bool))
def test_a_line_is_one_line_and_is_read_back_as_it_was(fields: dict[str, str], event: str) -> None:
    stream = io.StringIO()
    configure("info", False, stream)
    log(event, **fields)
    line, end = stream.getvalue()[:-1], stream.getvalue()[-1]
    assert end == "\n"
    assert line.splitlines() == [line]
    assert "\x00" not in line
    line.encode()
    assert parsed(line) == ("info", masked(event), {name: masked(value) for name, value in fields.items()})


def test_loggers_of_other_layers_are_heard_with_their_traceback(printed: io.StringIO) -> None:
    try:
        raise ValueError("postgresql://u:hunter2@h")
    except ValueError:
        logging.getLogger("penstock.engine").exception("it broke at %s", "noon")
    level, event, fields = parsed(printed.getvalue().removesuffix("\n"))
    assert (level, event) == ("error", "it broke at noon")
    assert "ValueError: postgresql://u:***@h" in fields["traceback"]


def test_nothing_reaches_the_loggers_of_the_program_around(printed: io.StringIO) -> None:
    heard: list[logging.LogRecord] = []
    listening = logging.Handler()
    listening.emit = heard.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(listening)
    try:
        log("ours", level="error")
    finally:
        logging.getLogger().removeHandler(listening)
    assert not heard
    assert "ours" in printed.getvalue()


# secrets


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_password_is_never_written(text: str, as_json: bool) -> None:
    stream = io.StringIO()
    configure("info", as_json, stream)
    with attempt_log(state=text) as tail:
        log(f"lost {text}", error=text, nested={"a": [text]}, failure=RuntimeError(text), path=Decimal(1))
    assert "hunter2" in text
    assert "hunter2" not in stream.getvalue()
    assert "hunter2" not in tail.text()
    assert "***" in stream.getvalue()


def test_the_test_of_secrets_would_see_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "masked", lambda text: text)
    with pytest.raises(AssertionError):
        test_a_password_is_never_written(SECRETS[0], False)


def test_a_field_named_like_a_secret_is_not_shown(printed: io.StringIO) -> None:
    log("connected", password="hunter2", conf={"db_password": 4711, "user": "u"})
    assert printed.getvalue().endswith(
        r'connected password=*** conf="{\"db_password\": \"***\", \"user\": \"u\"}"' + "\n"
    )


def test_what_is_no_secret_stays() -> None:
    said = "https://host:8080/x, s3://bucket/a, postgresql://user@host/db, a@b.c, unique_key=3, 10:30, token=7"
    assert masked(said) == said
    assert masked("postgresql://user:p@host:5432/db at 10:30") == "postgresql://user:***@host:5432/db at 10:30"


def test_a_cut_does_not_bare_a_secret() -> None:
    long = "x" * (logs.VALUE_CHARACTERS - 30) + " postgresql://user:" + "hunter2" * 50 + "@host"
    assert "hunter2" not in masked(long)
    assert len(masked("y" * 1_000_000)) == logs.VALUE_CHARACTERS + 1


# attempts


def test_fields_are_bound_for_the_time_of_the_block(printed: io.StringIO) -> None:
    with attempt_log(task=1, attempt=2):
        log("inside", seconds=3)
        with attempt_log(attempt=3):
            log("deeper")
    log("outside")
    said = [parsed(line)[1:] for line in printed.getvalue().splitlines()]
    assert said == [
        ("inside", {"task": "1", "attempt": "2", "seconds": "3"}),
        ("deeper", {"task": "1", "attempt": "3"}),
        ("outside", {}),
    ]


def test_a_tail_keeps_what_is_not_printed(printed: io.StringIO) -> None:
    log("before")
    with attempt_log(task=1) as tail:
        log("detail", level="debug")
        with attempt_log() as inner:
            log("deeper")
    log("after")
    assert [parsed(line)[1] for line in tail.text().splitlines()] == ["detail", "deeper"]
    assert [parsed(line)[1] for line in inner.text().splitlines()] == ["deeper"]
    assert "detail" not in printed.getvalue()


def test_a_tail_holds_the_last_lines_only() -> None:
    with attempt_log() as tail:
        for number in range(TAIL_LINES + 50):
            log(f"n{number}", level="debug")
    kept = [parsed(line)[1] for line in tail.text().splitlines()]
    assert kept == [f"n{number}" for number in range(50, TAIL_LINES + 50)]


def test_a_tail_of_long_lines_stays_small_and_whole() -> None:
    with attempt_log() as tail:
        for number in range(TAIL_LINES):
            log(f"n{number}", level="debug", error="e" * 1_000)
    lines = tail.text().splitlines()
    assert 10 < len(lines) < TAIL_LINES
    assert len(tail.text()) <= TAIL_CHARACTERS
    assert parsed(lines[-1])[1] == f"n{TAIL_LINES - 1}"
    assert all(parsed(line) for line in lines)


def test_an_error_inside_the_block_leaves_the_tail_and_unbinds() -> None:
    with pytest.raises(RuntimeError), attempt_log(task=1) as tail:
        log("begun")
        raise RuntimeError
    assert "begun task=1" in tail.text()
    with attempt_log() as later:
        log("free")
    assert "task" not in later.text()


def test_a_value_that_cannot_be_said_does_not_end_the_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    with attempt_log() as tail:
        log("mute", value=Mute())
        log("next")
    assert parsed(tail.text())[1] == "next"
    assert "no words" in capsys.readouterr().err


def test_threads_do_not_mix(printed: io.StringIO) -> None:
    together = threading.Barrier(4)
    tails: dict[int, str] = {}

    def attempt(task: int) -> None:
        with attempt_log(task=task) as tail:
            for number in range(20):
                together.wait(10)
                log("step", number=number)
            tails[task] = tail.text()

    threads = [threading.Thread(target=attempt, args=(task,)) for task in range(4)]
    with attempt_log(task="main") as own:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert own.text() == ""
    for task in range(4):
        assert [parsed(line)[2] for line in tails[task].splitlines()] == [
            {"task": str(task), "number": str(number)} for number in range(20)
        ]
    assert len([parsed(line) for line in printed.getvalue().splitlines()]) == 80
