"""Do the server and the network that crash tests use break as they say?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from network import Proxy
from postgres_server import PostgresServer, own_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_server() as made, psycopg.connect(made.dsn) as line:
        line.execute("create table seen (n int)")
        line.commit()
        yield made


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with psycopg.connect(server.dsn) as line:
        line.execute("truncate seen")
    with Proxy("127.0.0.1", server.port) as made:
        yield made


def through(server: PostgresServer, proxy: Proxy, **more: object) -> psycopg.Connection:
    return psycopg.connect(server.dsn_at(proxy.host, proxy.port), **more)  # type: ignore[arg-type]


def rows(server: PostgresServer) -> list[int]:
    with psycopg.connect(server.dsn) as line:
        return [n for (n,) in line.execute("select n from seen order by n")]


def test_everything_passes_in_both_directions(server: PostgresServer, proxy: Proxy) -> None:
    with through(server, proxy) as line:
        found = line.execute("select repeat(%s, 1000000)", ("löß",)).fetchone()
    assert found == ("löß" * 1_000_000,)


def test_many_may_speak_at_once(server: PostgresServer, proxy: Proxy) -> None:
    def speak(n: int) -> None:
        with through(server, proxy) as line:
            for _ in range(20):
                line.execute("insert into seen values (%s)", (n,))
                line.commit()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(speak, range(8)))
    assert rows(server) == sorted(list(range(8)) * 20)


def test_a_cut_resets_what_is_open_and_refuses_what_is_new_until_it_heals(server: PostgresServer, proxy: Proxy) -> None:
    with through(server, proxy) as line:
        line.execute("insert into seen values (1)")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            line.execute("select 1")
        with pytest.raises(psycopg.OperationalError, match="refused"):
            through(server, proxy)
    proxy.heal()
    with through(server, proxy) as line:
        assert line.execute("select 1").fetchone() == (1,)
    assert rows(server) == []


def test_a_hung_network_says_nothing_and_heals_with_a_reset(server: PostgresServer, proxy: Proxy) -> None:
    with through(server, proxy) as line, ThreadPoolExecutor(1) as pool:
        quiet = through(server, proxy)
        line.execute("select 1")
        proxy.hang()
        asked = pool.submit(line.execute, "insert into seen values (1)")
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            through(server, proxy, connect_timeout=2)
        assert not asked.done()
        proxy.heal()
        assert isinstance(asked.exception(20), psycopg.OperationalError)
        assert quiet.execute("select 1").fetchone() == (1,)  # it had said nothing, so it missed nothing
        quiet.close()
    assert rows(server) == []


def test_while_the_network_hangs_the_server_does_not_learn_that_a_client_is_gone(
    server: PostgresServer, proxy: Proxy
) -> None:
    line = through(server, proxy, autocommit=True)
    line.execute("select pg_advisory_lock(1)")
    with psycopg.connect(server.dsn, autocommit=True) as other:
        proxy.hang()
        line.close()
        assert other.execute("select pg_try_advisory_lock(1)").fetchone() == (False,)
        proxy.heal()
        other.execute("select pg_advisory_lock(1)")  # waits until the server has learned of it


def test_a_lost_answer_of_a_commit_leaves_the_row_and_an_error(server: PostgresServer, proxy: Proxy) -> None:
    line = through(server, proxy)
    line.execute("insert into seen values (1)")
    proxy.lose_next_answer(after=b"COMMIT")
    with pytest.raises(psycopg.OperationalError):
        line.commit()
    assert proxy.lost.wait(10)
    assert rows(server) == [1]
    with through(server, proxy) as again:  # only one answer is lost
        again.execute("insert into seen values (2)")
    assert rows(server) == [1, 2]


def test_a_word_that_comes_in_two_parts_is_heard() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, Proxy(*listening.getsockname()) as proxy:
        proxy.lose_next_answer(after=b"COMMIT")
        with socket.create_connection((proxy.host, proxy.port)) as client:
            answering, _ = listening.accept()
            with answering:
                for part in (b"COM", b"MIT"):
                    client.sendall(part)
                    assert answering.recv(10) == part
                answering.sendall(b"done")
                with pytest.raises(ConnectionResetError):
                    client.recv(10)
        assert proxy.lost.is_set()


def test_a_request_without_the_word_loses_nothing(server: PostgresServer, proxy: Proxy) -> None:
    proxy.lose_next_answer(after=b"NO SUCH WORD")
    with through(server, proxy) as line:
        line.execute("insert into seen values (1)")
    assert rows(server) == [1]
    assert not proxy.lost.is_set()


def test_a_server_that_is_down_resets_who_comes_through_the_network(proxy: Proxy) -> None:
    with Proxy("127.0.0.1", proxy.port) as behind:
        proxy.cut()
        with socket.create_connection((behind.host, behind.port)) as client, pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("how", ["stop", "crash", "kill"])
def test_a_server_comes_back_with_what_was_committed(server: PostgresServer, proxy: Proxy, how: str) -> None:
    with through(server, proxy) as line:
        line.execute("insert into seen values (1)")
    open_transaction = through(server, proxy)
    open_transaction.execute("insert into seen values (2)")
    getattr(server, how)()
    with pytest.raises(psycopg.OperationalError):
        open_transaction.commit()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn)
    server.start()
    assert rows(server) == [1]
    with psycopg.connect(server.dsn) as line:
        assert line.execute("show fsync").fetchone() == ("on",)


def test_orders_may_come_from_many_threads(server: PostgresServer, proxy: Proxy) -> None:
    def confuse() -> None:
        for _ in range(20):
            proxy.cut()
            proxy.hang()
            proxy.heal()

    threads = [threading.Thread(target=confuse) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    proxy.heal()
    with through(server, proxy) as line:
        assert line.execute("select 1").fetchone() == (1,)
