"""Connections of the HTTP endpoints: a slow client keeps no other from being answered.

One thread reads all requests, as they come. Whoever takes long to ask costs a descriptor and no thread, for a moment
and within limits; when there is no room, the oldest goes of those who take most of it.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

HEAD_SECONDS = 2.0
"""How long a client may take to ask."""
TAKE_SECONDS = 5.0
"""How long a client may take to fetch its answer."""
LARGEST_HEAD_BYTES = 8192
MOST_CONNECTIONS = 96
MOST_CONNECTIONS_PER_PEER = 32
MOST_ANSWERS = 8
"""So many answers that take time are made at once."""
MOST_ANSWERS_PER_PEER = 4
_NO_ROOM_SECONDS = 0.01


class Handler(Protocol):
    """Who knows the answers, as bytes."""

    def takes_time(self, head: bytes) -> bool:
        """False: it is answered at once, by the thread that reads."""

    def answer(self, head: bytes) -> bytes:
        """Whatever was asked; never an error."""

    def refusal(self, reason: HTTPStatus) -> bytes: ...


@dataclass(slots=True, eq=False)
class Connection:
    """One connection: one request, one answer."""

    line: socket.socket
    peer: str
    until: float
    head: bytes = b""
    phase: str = "asking"
    """Then "answered", until it hangs up; or "waiting", for a thread that makes its answer."""

    def hang_up(self) -> None:
        with suppress(OSError):
            self.line.shutdown(socket.SHUT_RDWR)
        self.line.close()


class Server:
    """Listens until it is closed."""

    def __init__(self, listener: socket.socket, handler: Handler) -> None:
        self._listener, self._handler = listener, handler
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._open: dict[object, Connection] = {}
        self._left, self._waker = socket.socketpair()
        self._left.setblocking(False)
        self._guard = threading.Lock()
        self._gone: list[Connection] = []
        """Those whose threads are done with them."""
        self._closing = False
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._left, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._keep, name="endpoints", daemon=True)

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Hang up; an answer that is still being made is not waited for."""
        self._closing = True
        self._waker.send(b"!")
        self._thread.join()
        self._waker.close()
        self._left.close()

    def _keep(self) -> None:
        while not self._closing:
            heard = [key.fileobj for key, _ in self._selector.select(self._pause())]
            # those inside first: whoever has asked already makes no room for others
            for connection in [self._open[line] for line in heard if line in self._open]:
                self._listen(connection)
            if self._left in heard:
                self._let_out()
            if self._listener in heard:
                self._let_in()
            self._send_away_overdue(time.monotonic())
        self._listener.close()
        self._selector.close()
        for connection in self._open.values():
            connection.hang_up()

    def _pause(self) -> float | None:
        ends = [connection.until for connection in self._open.values() if connection.phase != "waiting"]
        return max(min(ends) - time.monotonic(), 0.0) if ends else None

    def _let_in(self) -> None:
        try:
            line, address = self._listener.accept()
        except OSError:  # it left again; or there is no descriptor for it, and it will be here in the next turn, too
            time.sleep(_NO_ROOM_SECONDS)
            return
        peer = str(address[0])
        self._make_room(peer)
        line.setblocking(False)
        self._open[line] = Connection(line, peer, time.monotonic() + HEAD_SECONDS)
        self._selector.register(line, selectors.EVENT_READ)

    def _make_room(self, peer: str) -> None:
        while (crowded := crowd(self._open.values(), peer)) is not None:
            self._drop(crowded)

    def _listen(self, connection: Connection) -> None:
        try:
            heard = connection.line.recv(LARGEST_HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._drop(connection)
        elif connection.phase == "asking":  # what comes after the request is of no interest
            connection.head += heard
            if b"\n\n" in connection.head.replace(b"\r\n", b"\n"):
                self._attend(connection)
            elif len(connection.head) >= LARGEST_HEAD_BYTES:
                self._answer(connection, self._handler.refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _attend(self, connection: Connection) -> None:
        waiting = Counter(other.peer for other in self._open.values() if other.phase == "waiting")
        if not self._handler.takes_time(connection.head):
            self._answer(connection, self._handler.answer(connection.head))
        elif waiting.total() >= MOST_ANSWERS or waiting[connection.peer] >= MOST_ANSWERS_PER_PEER:
            self._answer(connection, self._handler.refusal(HTTPStatus.SERVICE_UNAVAILABLE))
        else:
            connection.phase = "waiting"
            self._selector.unregister(connection.line)
            threading.Thread(target=self._fetch, args=(connection,), name="endpoints-answer", daemon=True).start()

    def _answer(self, connection: Connection, said: bytes) -> None:
        """Short, so that it fits where the system keeps it; then wait for the client to hang up, lest it be lost."""
        with suppress(OSError):
            connection.line.send(said)
            connection.line.shutdown(socket.SHUT_WR)
        connection.phase = "answered"

    def _fetch(self, connection: Connection) -> None:
        """In a thread of its own."""
        try:
            said = self._handler.answer(connection.head)
            with suppress(OSError):
                connection.line.settimeout(TAKE_SECONDS)
                connection.line.sendall(said)
        finally:
            with self._guard:
                self._gone.append(connection)
            with suppress(OSError):
                self._waker.send(b"!")

    def _let_out(self) -> None:
        with suppress(BlockingIOError):
            self._left.recv(4096)
        with self._guard:
            gone, self._gone = self._gone, []
        for connection in gone:
            self._open.pop(connection.line, None)
            connection.hang_up()

    def _send_away_overdue(self, now: float) -> None:
        for connection in [
            connection
            for connection in self._open.values()
            if connection.until <= now and connection.phase != "waiting"
        ]:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._selector.unregister(connection.line)
        del self._open[connection.line]
        connection.hang_up()


def crowd(inside: Iterable[Connection], peer: str) -> Connection | None:
    """Who has to leave before one more of `peer` comes in: the oldest of that peer, else of the one that has most."""
    movable = [connection for connection in inside if connection.phase != "waiting"]
    counts = Counter(connection.peer for connection in movable)
    if counts[peer] >= MOST_CONNECTIONS_PER_PEER:
        largest = peer
    elif counts.total() >= MOST_CONNECTIONS:
        largest = max(counts, key=counts.__getitem__)
    else:
        return None
    return min(
        (connection for connection in movable if connection.peer == largest), key=lambda connection: connection.until
    )
