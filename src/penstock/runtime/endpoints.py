"""Who answers when asked over HTTP how this process is?"""

from __future__ import annotations

import errno
import json
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.errors import UsageError
from penstock.runtime.logs import log, plain
from penstock.runtime.metrics import CONTENT_TYPE, Metrics

Ready = Callable[[], tuple[bool, Mapping[str, object]]]
"""Whether work can be done now, and the facts that say so; asked from threads of the server."""

SILENCE_SECONDS = 5.0
"""How long a client may say nothing, or not take what it asked for."""
REQUEST_SECONDS = 10.0
"""How long a request may take in all: a client that sends a byte now and then does not keep a thread."""
MOST_CONNECTIONS = 64
_POLL_SECONDS = 0.25
_HINT = "write host:port, such as 127.0.0.1:9090, [::1]:9090, or :9090 for every interface; port 0 takes a free one"


@contextmanager
def serve(address: str | None, metrics: Metrics, ready: Ready, alive: Callable[[], bool]) -> Iterator[str | None]:
    """Answer /metrics, /healthz and /readyz until the block ends; yields the address that was really taken."""
    if address is None:
        yield None
        return
    server = _listening(address, _Answers(metrics, ready, alive))
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="endpoints", daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is said at each path."""

    metrics: Metrics
    ready: Ready
    alive: Callable[[], bool]

    def at(self, path: str) -> _Answer:
        if path == "/metrics":
            return _Answer(HTTPStatus.OK, self.metrics.text(), CONTENT_TYPE)
        if path == "/healthz":
            return _said(HTTPStatus.OK, "ok") if self.alive() else _said(_UNAVAILABLE, "the main loop stands still")
        if path == "/readyz":
            return self._readiness()
        return _said(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")

    def _readiness(self) -> _Answer:
        ready, facts = self.ready()
        body = json.dumps({"ready": ready} | {name: plain(fact, name) for name, fact in facts.items()})
        return _Answer(HTTPStatus.OK if ready else _UNAVAILABLE, body.encode() + b"\n", "application/json")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    body: bytes
    content_type: str


_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE


def _said(status: HTTPStatus, text: str) -> _Answer:
    return _Answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8")


class _Request(BaseHTTPRequestHandler):
    """One connection: one request, one answer."""

    timeout = SILENCE_SECONDS

    def __init__(self, answers: _Answers, *connection: Any) -> None:
        self._answers = answers
        super().__init__(*connection)  # answers before it returns

    def do_GET(self) -> None:
        try:
            answer = self._answers.at(self.path.partition("?")[0])
        except Exception as error:  # whoever watches must hear of it; the next question may go well
            log("endpoint_failed", "error", path=self.path, error=f"{type(error).__name__}: {error}")
            answer = _said(_UNAVAILABLE, f"the answer failed: {type(error).__name__}")
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815  # the name is looked up

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request; what it said is not repeated."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.request_version = "HTTP/1.0"  # a line that could not be read has none, and would get no status
        self._send(_said(status, status.phrase))

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "penstock"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is inherited
        """Probes come every few seconds: they are not worth a line."""


class _Server(ThreadingHTTPServer):
    """A thread per connection; none of them outlives its time, or holds up the end."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, family: socket.AddressFamily, place: Any, answers: _Answers) -> None:
        self.address_family = family
        self._open: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        super().__init__(place, partial(_Request, answers))

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    def server_bind(self) -> None:
        # the inherited one asks the name service who we are, which can take long
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "penstock", self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._guard:
            return len(self._open) < MOST_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self._cut(time.monotonic() - REQUEST_SECONDS)

    def server_close(self) -> None:
        super().server_close()
        self._cut(time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        expected = isinstance(error, OSError)  # the client went away, or was cut off
        log("endpoint_broke_off", "debug" if expected else "error", error=f"{type(error).__name__}: {error}")

    def _cut(self, begun_before: float) -> None:
        """Wake the threads of old connections; each closes its own."""
        with self._guard:
            for request, begun in self._open.items():
                if begun <= begun_before:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)


def _listening(address: str, answers: _Answers) -> _Server:
    host, port = _parsed(address)
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _Server(family, place, answers)
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error.strerror or error}", hint=_advice(error)) from error
    except ValueError as error:  # a name that cannot even be asked for
        raise UsageError(f"cannot listen on {address!r}: {host!r} is no host name", hint=_HINT) from error


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    fits = re.fullmatch(r"[0-9]{1,5}", port) is not None and int(port) < 65536
    if not colon or not fits or (":" in host and not bracketed):
        raise UsageError(f"{address!r} is no address to listen on", hint=_HINT)
    return (host[1:-1] if bracketed else host), int(port)


def _advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process has that port: stop it, or choose another port; port 0 takes a free one"
    if error.errno == errno.EACCES:
        return "ports below 1024 need special rights: choose a higher one"
    return f"is that an address of this machine? {_HINT}"
