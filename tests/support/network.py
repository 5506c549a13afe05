"""A network between a client and a server that can be cut, hung, and made to lose an answer."""

from __future__ import annotations

import queue
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Literal, Self

from postgres_server import HOST, free_port

_CHUNK_BYTES = 65536
_CONNECT_SECONDS = 5.0
_ORDER_SECONDS = 30.0


@dataclass
class _End:
    """One of the two sockets of a line, and what still has to be sent there."""

    socket: socket.socket
    waiting: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class _Line:
    client: _End
    server: _End
    seen: bytes = b""
    """The last bytes of what the client asked: a word may come in two parts."""
    answer_is_lost: bool = False
    damaged: bool = False
    """Bytes were swallowed: nobody can make sense of what follows."""

    @property
    def ends(self) -> tuple[_End, _End]:
        return self.client, self.server

    def other(self, end: _End) -> _End:
        return self.server if end is self.client else self.client


class Proxy:
    """Listens on a port of its own and passes everything on. Orders may come from any thread; they hold on return."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.host, self.port = HOST, free_port()
        self.lost = threading.Event()
        """Set when an answer was lost as ordered."""
        self._target = (target_host, target_port)
        self._mode: Literal["open", "cut", "hung"] = "open"
        self._losing: bytes | None = None
        self._lines: set[_Line] = set()
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._obey)
        self._stopped = False
        self._listen()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()

    # orders

    def cut(self) -> None:
        """Every connection is reset, and new ones are refused."""
        self._order(self._cut)

    def hang(self) -> None:
        """Bytes vanish in both directions; connections stay, and new ones are made that say nothing."""
        self._order(self._hang)

    def lose_next_answer(self, after: bytes) -> None:
        """The next request with these bytes reaches the server; when it answers, its connection is reset instead."""
        self._order(partial(self._lose, after))

    def heal(self) -> None:
        """All is well again; connections that lost bytes are reset, as by a router that knows nothing of them."""
        self._order(self._heal)

    @property
    def connections(self) -> int:
        return len(self._lines)

    def close(self) -> None:
        if self._thread.is_alive():
            self._order(self._stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order(self, what: Callable[[], None]) -> None:
        done = threading.Event()

        def do() -> None:
            what()
            done.set()

        self._orders.put(do)
        self._waker.send(b"!")
        if not done.wait(_ORDER_SECONDS):
            raise TimeoutError("the proxy is not obeying")

    # all below happens in the proxy's thread, so nothing needs a lock

    def _serve(self) -> None:
        while not self._stopped:
            for key, events in self._selector.select():
                if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]  # not closed by an earlier event of this round
                    key.data(events)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _obey(self, _: int) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        while not self._orders.empty():
            self._orders.get()()

    def _listen(self) -> None:
        self._listener = socket.create_server((self.host, self.port), backlog=128)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _refuse(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _cut(self) -> None:
        self._mode = "cut"
        self._refuse()
        for line in tuple(self._lines):
            self._end(line, _abort)

    def _hang(self) -> None:
        self._mode = "hung"
        for line in self._lines:
            for end in line.ends:
                line.damaged |= bool(end.waiting)
                end.waiting.clear()
        if self._listener is None:
            self._listen()

    def _lose(self, after: bytes) -> None:
        self.lost.clear()
        self._losing = after
        for line in self._lines:
            line.seen = b""

    def _heal(self) -> None:
        self._mode, self._losing = "open", None
        for line in tuple(self._lines):
            if line.damaged:
                self._end(line, _abort)
        if self._listener is None:
            self._listen()

    def _stop(self) -> None:
        self._cut()
        self._stopped = True

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        try:
            client, _address = self._listener.accept()
        except OSError:
            return
        try:
            server = socket.create_connection(self._target, timeout=_CONNECT_SECONDS)
        except OSError:
            _abort(client)
            return
        line = _Line(_End(client), _End(server))
        self._lines.add(line)
        for end in line.ends:
            end.socket.setblocking(False)
            end.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end.socket, selectors.EVENT_READ, partial(self._move, line, end))

    def _move(self, line: _Line, end: _End, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(line, end)
            if events & selectors.EVENT_READ:
                self._receive(line, end)
        except BlockingIOError:
            return
        except OSError:
            self._hear_end(line, end, _abort)

    def _receive(self, line: _Line, end: _End) -> None:
        got = end.socket.recv(_CHUNK_BYTES)
        if not got:
            self._hear_end(line, end, lambda line_end: line_end.close())
        elif self._mode == "hung":
            line.damaged = True
        elif end is line.server and line.answer_is_lost:
            self.lost.set()  # first: whoever sees the reset may ask
            self._end(line, _abort)
        else:
            if end is line.client and self._losing is not None:
                self._listen_for_word(line, got)
            other = line.other(end)
            other.waiting += got
            self._flush(line, other)

    def _hear_end(self, line: _Line, end: _End, close: Callable[[socket.socket], None]) -> None:
        """One side is gone. While the network hangs, the other one does not learn of it."""
        if self._mode == "hung":
            line.damaged = True
            self._selector.unregister(end.socket)
        elif line.other(end).waiting:  # it does not read
            self._end(line, _abort)
        else:
            self._end(line, close)

    def _listen_for_word(self, line: _Line, got: bytes) -> None:
        assert self._losing is not None
        heard = line.seen + got
        if self._losing in heard:
            line.answer_is_lost, self._losing = True, None
        else:
            line.seen = heard[-len(self._losing) + 1 :] if len(self._losing) > 1 else b""

    def _flush(self, line: _Line, end: _End) -> None:
        with suppress(BlockingIOError):
            del end.waiting[: end.socket.send(end.waiting) if end.waiting else 0]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if end.waiting else 0)
        self._selector.modify(end.socket, events, partial(self._move, line, end))

    def _end(self, line: _Line, close: Callable[[socket.socket], None]) -> None:
        self._lines.remove(line)
        for end in line.ends:
            with suppress(KeyError):  # it ended while the network was hung
                self._selector.unregister(end.socket)
            close(end.socket)


def _abort(line_end: socket.socket) -> None:
    """Close with a reset instead of a goodbye."""
    with suppress(OSError):
        line_end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line_end.close()
