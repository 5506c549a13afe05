"""Do the endpoints answer truly, and whatever clients do?"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import UsageError
from penstock.runtime.process.logs import attempt_log
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.serve import connections as server
from penstock.runtime.serve import endpoints
from penstock.runtime.serve.connections import Connection, Server, crowd
from penstock.runtime.serve.endpoints import serve

QUICK = 2.0
"""Far less than any time limit of the server, far more than an answer takes."""


def always() -> bool:
    return True


def is_ready() -> tuple[bool, Mapping[str, object]]:
    return True, {"state": "reachable"}


@contextmanager
def served(
    address: str = "127.0.0.1:0",
    ready: Callable[[], tuple[bool, Mapping[str, object]]] = is_ready,
    alive: Callable[[], bool] = always,
) -> Iterator[str]:
    with serve(address, Metrics(), ready, alive) as place:
        assert place is not None
        yield place


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with served() as found:
        yield found


def ask(place: str, path: str, method: str = "GET", seconds: float = 10.0) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(place, timeout=seconds)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def status(place: str, path: str, method: str = "GET", seconds: float = 10.0) -> int:
    return ask(place, path, method, seconds)[0].status


@contextmanager
def connected(place: str) -> Iterator[socket.socket]:
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        yield client


def said_to(place: str, sent: bytes) -> bytes:
    """All that comes back before the server closes."""
    with connected(place) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


# what is answered


def test_metrics_are_given_in_the_text_format(place: str) -> None:
    answer, body = ask(place, "/metrics?name=x")
    assert answer.status == 200
    assert answer.getheader("Content-Type", "").startswith("text/plain; version=0.0.4")
    assert {family.name for family in text_string_to_metric_families(body.decode())} > {"penstock_tasks"}


def test_health_follows_the_main_loop() -> None:
    turning = threading.Event()
    turning.set()
    with served(alive=turning.is_set) as place:
        assert status(place, "/healthz") == 200
        turning.clear()
        assert status(place, "/healthz") == 503
        assert status(place, "/readyz") == 200
        turning.set()
        assert status(place, "/healthz") == 200


def test_readiness_says_why() -> None:
    facts: dict[str, object] = {"state": "cannot reach postgresql://u:hunter2@h/db", "slots": 2}
    with served(ready=lambda: (False, facts)) as place:
        answer, body = ask(place, "/readyz")
    assert (answer.status, answer.getheader("Content-Type")) == (503, "application/json")
    assert json.loads(body) == {"ready": False, "state": "cannot reach postgresql://u:***@h/db", "slots": 2}


def test_a_ready_process_says_so(place: str) -> None:
    answer, body = ask(place, "/readyz")
    assert answer.status == 200
    assert json.loads(body) == {"ready": True, "state": "reachable"}


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/nothing"])
def test_head_is_get_without_the_body(place: str, path: str) -> None:
    full, body = ask(place, path)
    brief, nothing = ask(place, path, "HEAD")
    assert nothing == b""
    assert brief.status == full.status
    assert brief.getheader("Content-Length") == str(len(body))


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/../metrics", "*", "/%6detrics"])
def test_other_paths_are_not_found(place: str, path: str) -> None:
    assert status(place, path) == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "RUBBISH"])
def test_other_methods_are_refused(place: str, method: str) -> None:
    answer, _ = ask(place, "/metrics", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


def test_an_answer_that_fails_is_an_error_and_the_next_one_is_not() -> None:
    asked = iter(range(2))

    def ready() -> tuple[bool, Mapping[str, object]]:
        if next(asked) == 0:
            raise RuntimeError("postgresql://u:hunter2@h")
        return True, {}

    with served(ready=ready) as place:
        answer, body = ask(place, "/readyz")
        assert (answer.status, body) == (503, b"the answer failed: RuntimeError\n")
        assert status(place, "/readyz") == 200


def test_nothing_is_printed(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    status(place, "/metrics")
    status(place, "/nothing", "POST")
    said_to(place, b"\x16\x03\x01rubbish\r\n\r\n")
    with connected(place) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n")
    assert status(place, "/healthz") == 200
    assert capfd.readouterr() == ("", "")


# clients that behave badly


@pytest.mark.parametrize(
    "sent",
    [
        b"rubbish\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /metrics HTTP/nine\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /a b c d HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n",
        b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
    ids=["words", "tls", "no-number", "far-number", "many-words", "long-line", "many-headers", "long-header"],
)
def test_rubbish_is_refused_and_the_server_stays(place: str, sent: bytes) -> None:
    answered = said_to(place, sent)
    assert answered.startswith(b"HTTP/1.0 ")
    assert answered[9:10] in b"45"
    assert b"rubbish" not in answered
    assert status(place, "/healthz") == 200


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /metrics HTTP/1.1\r\nHost"])
def test_a_request_that_ends_early_leaves_the_server_up(place: str, sent: bytes) -> None:
    said_to(place, sent)
    assert status(place, "/healthz") == 200


def test_clients_that_hang_do_not_block_others(place: str) -> None:
    with connected(place), connected(place) as second, connected(place) as third:
        second.sendall(b"GET /met")
        third.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(3):
            assert status(place, "/healthz", seconds=QUICK) == 200


@contextmanager
def slow_crowd(place: str, size: int) -> Iterator[list[socket.socket]]:
    """So many clients that have begun to ask and never end."""
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(place)) for _ in range(size)]
        for client in clients:
            with suppress(OSError):  # sent away already
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        yield clients


def answered(place: str, path: str = "/healthz") -> bool:
    try:
        return status(place, path, seconds=QUICK) == 200
    except OSError:
        return False


def test_150_slow_clients_do_not_starve_health(place: str) -> None:
    with slow_crowd(place, 150):
        assert all(answered(place, path) for path in ("/healthz", "/readyz", "/metrics"))


def test_if_the_last_one_had_to_leave_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    let_in = Server._let_in

    def let_in_or_turn_away(self: Server) -> None:
        if crowd(self._open.values(), "127.0.0.1") is None:
            let_in(self)
        else:
            self._listener.accept()[0].close()

    monkeypatch.setattr(Server, "_let_in", let_in_or_turn_away)
    with served() as place, slow_crowd(place, 150):
        assert not answered(place)


def test_a_peer_that_takes_much_room_makes_room_for_others() -> None:
    greedy = [connection("10.0.0.1", n) for n in range(server.MOST_CONNECTIONS_PER_PEER)]
    modest = [connection(f"10.0.1.{n}", -1) for n in range(server.MOST_CONNECTIONS - len(greedy))]
    assert crowd([*modest, *greedy], "10.0.0.2") is greedy[0]
    assert crowd([*modest[1:], *greedy], "10.0.0.2") is None
    assert crowd(greedy, "10.0.0.1") is greedy[0], "nobody else had to leave"
    greedy[0].phase = "answered"
    assert crowd(greedy, "10.0.0.1") is greedy[0]
    for one in greedy:
        one.phase = "waiting"
    assert crowd([*modest, *greedy], "10.0.0.1") is None, "whose answer is being made stays"


def connection(peer: str, until: float) -> Connection:
    with socket.socket() as line:
        return Connection(line, peer, until)


def test_health_is_answered_while_every_other_answer_takes_long() -> None:
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def ready() -> tuple[bool, Mapping[str, object]]:
        waiting.release()
        return go_on.wait(20), {}

    with served(ready=ready) as place, ThreadPoolExecutor(server.MOST_ANSWERS_PER_PEER) as pool:
        asked = [pool.submit(status, place, "/readyz") for _ in range(server.MOST_ANSWERS_PER_PEER)]
        for _ in asked:
            assert waiting.acquire(timeout=10)
        assert status(place, "/readyz", seconds=QUICK) == 503, "so many at once for one peer"
        assert answered(place)
        go_on.set()
        assert {one.result() for one in asked} == {200}


def test_if_health_waited_for_a_thread_too_it_would_not_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, waiting = threading.Event(), threading.Event()

    def ready() -> tuple[bool, Mapping[str, object]]:
        waiting.set()
        return go_on.wait(20), {}

    monkeypatch.setattr(server, "MOST_ANSWERS", 1)
    monkeypatch.setattr(endpoints._Answers, "takes_time", lambda self, head: True)
    with served(ready=ready) as place, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(status, place, "/readyz")
        assert waiting.wait(10)
        assert not answered(place)
        go_on.set()
        assert asked.result() == 200


def test_a_silent_client_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    with served() as place, connected(place) as client:
        assert client.recv(1) == b""


def drip(place: str, seconds: float) -> bool:
    """Whether a client that never stops sending is cut off within the time."""
    until = time.monotonic() + seconds
    with connected(place) as client:
        client.settimeout(0.05)
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        while time.monotonic() < until:
            try:
                client.sendall(b"X")
                if client.recv(1) == b"":
                    return True
            except TimeoutError:
                continue
            except OSError:
                return True
    return False


def test_a_client_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with served() as place:
        assert drip(place, 10)
        assert status(place, "/healthz") == 200


def test_without_the_limit_on_the_whole_request_it_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(Server, "_send_away_overdue", lambda self, now: None)
    with served() as place:
        assert not drip(place, 1.0)


def test_a_client_that_does_not_take_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TAKE_SECONDS", 0.2)
    monkeypatch.setattr(Metrics, "text", lambda self: b"x" * 50_000_000)
    with served() as place, connected(place) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.0 200"
        assert cut_off(client)


def cut_off(client: socket.socket) -> bool:
    """Whether the answer ended early, after nobody took it for a while."""
    for thread in threading.enumerate():
        if thread.name == "endpoints-answer":
            thread.join(10)
    taken = 0
    with suppress(ConnectionResetError):
        while part := client.recv(1_000_000):
            taken += len(part)
    return taken < 50_000_000


def test_neither_a_client_that_hangs_nor_an_answer_in_the_making_holds_up_the_end() -> None:
    go_on, waiting = threading.Event(), threading.Event()

    def ready() -> tuple[bool, Mapping[str, object]]:
        waiting.set()
        return go_on.wait(20), {}

    with ThreadPoolExecutor(1) as pool:
        with served(ready=ready) as place, connected(place) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
            asked = pool.submit(answered, place, "/readyz")
            assert waiting.wait(10)
        assert asked.result() is False, "it was cut off before its answer was there"
        go_on.set()


def test_the_port_is_free_again_afterwards() -> None:
    with served() as place:
        assert status(place, "/healthz") == 200
    with pytest.raises(ConnectionRefusedError):
        status(place, "/healthz")
    with served(place) as again:
        assert again == place
        assert status(again, "/healthz") == 200


def test_it_ends_with_an_error_of_the_block_too() -> None:
    with pytest.raises(RuntimeError), served() as place:
        raise RuntimeError
    with pytest.raises(ConnectionRefusedError):
        status(place, "/healthz")


# addresses


def test_without_an_address_nothing_is_served() -> None:
    before = threading.active_count()
    with serve(None, Metrics(), is_ready, always) as place:
        assert place is None
        assert threading.active_count() == before


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", ":0", " 127.0.0.1:0 "])
def test_port_0_is_a_free_port(address: str) -> None:
    with served(address) as place:
        assert not place.endswith(":0")
        assert status(place, "/healthz") == 200


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    with served("[::1]:0") as place:
        assert place.startswith("[::1]:")
        assert status(place, "/healthz") == 200


@pytest.mark.parametrize(
    "address",
    ["", "9090", "localhost", "localhost:", ":", "a:b", "a:-1", "a:65536", "a:1.5", "a:８０", "::1:80", "a:99999999"],
)
def test_an_address_without_sense_is_a_mistake_of_the_call(address: str) -> None:
    with pytest.raises(UsageError, match="no address to listen on") as caught, served(address):
        pass
    assert caught.value.hint is not None
    assert "host:port" in caught.value.hint


@pytest.mark.parametrize(
    "address", ["no.such.host.invalid:0", "192.0.2.1:0", f"{'a' * 70}.b:0", "a\x00b:0", "[::1%no]:0"]
)
def test_an_address_of_another_machine_is_a_mistake_of_the_call(address: str) -> None:
    with pytest.raises(UsageError, match="cannot listen on") as caught, served(address):
        pass
    assert caught.value.hint is not None


def test_a_taken_port_says_what_to_do(place: str) -> None:
    with pytest.raises(UsageError, match="cannot listen on 127") as caught, served(place):
        pass
    assert caught.value.hint is not None
    assert "choose another port" in caught.value.hint
    assert status(place, "/healthz") == 200


def test_what_clients_do_is_not_part_of_an_attempt(place: str) -> None:
    with attempt_log(task=1) as tail:
        status(place, "/nothing", "POST")
        said_to(place, b"rubbish\r\n\r\n")
    assert tail.text() == ""
