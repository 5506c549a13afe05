"""The HTTP endpoints of a process: is it alive, is it ready, and its metrics."""

from __future__ import annotations

import errno
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO

from penstock.errors import UsageError
from penstock.runtime.process.logs import log, plain
from penstock.runtime.process.metrics import CONTENT_TYPE, Metrics
from penstock.runtime.serve.connections import Server

Ready = Callable[[], tuple[bool, Mapping[str, object]]]
"""Whether work can be done now, and the facts that say so; asked from threads of the server."""

_BACKLOG = 128
_HINT = "write host:port, such as 127.0.0.1:9090, [::1]:9090, or :9090 for every interface; port 0 takes a free one"


@contextmanager
def serve(address: str | None, metrics: Metrics, ready: Ready, alive: Callable[[], bool]) -> Iterator[str | None]:
    """Answer /metrics, /healthz and /readyz until the block ends; yields the address that was really taken."""
    if address is None:
        yield None
        return
    listener = _listening(address)
    taken = _address(listener)
    server = Server(listener, _Answers(metrics, ready, alive))
    server.open()
    try:
        yield taken
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is said at each path."""

    metrics: Metrics
    ready: Ready
    alive: Callable[[], bool]

    def takes_time(self, head: bytes) -> bool:
        """Health is looked up, not found out: it is told even while all others wait."""
        line = head.lstrip().partition(b"\n")[0]
        return b"/metrics" in line or b"/readyz" in line

    def answer(self, head: bytes) -> bytes:
        try:
            return _Request(self, head).answered
        except Exception as error:  # whatever a client may think of: the next one may ask better
            log("endpoint_broke_off", "error", error=f"{type(error).__name__}: {error}")
            return self.refusal(HTTPStatus.BAD_REQUEST)

    def refusal(self, reason: HTTPStatus) -> bytes:
        return _Request(self, b"", reason).answered

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
    """One request, read already, and the bytes of its answer."""

    def __init__(self, answers: _Answers, head: bytes, refused: HTTPStatus | None = None) -> None:
        self._answers = answers
        self.rfile, self._written = BytesIO(head), BytesIO()
        self.wfile = self._written
        self.command, self.requestline, self.request_version = "", "", "HTTP/1.0"
        if refused is None:
            self.handle()
        else:
            self.send_error(refused)

    @property
    def answered(self) -> bytes:
        return self._written.getvalue()

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


def _listening(address: str) -> socket.socket:
    host, port = _parsed(address)
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(place, family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error.strerror or error}", hint=_advice(error)) from error
    except ValueError as error:  # a name that cannot even be asked for
        raise UsageError(f"cannot listen on {address!r}: {host!r} is no host name", hint=_HINT) from error


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
