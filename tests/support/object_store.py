"""An object store of one folder over HTTP, as S3 speaks it: it counts what is asked, refuses and keeps waiting.

A process of its own: parts of delta-rs hold Python's lock while they wait for an answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "shelf"


@dataclass
class ObjectStore:
    """What lies in a folder is what the bucket holds."""

    address: str
    _told: IO[str]
    _said: IO[str]

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint": self.address,
            "aws_allow_http": "true",
            "aws_region": "here",
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "max_retries": "0",
        }

    def location(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def answer(self, status: int | None) -> None:
        """Every request gets this status; None: what it asks for."""
        self._say("status", status)

    def hang(self, opening: str | None = None) -> None:
        """Nobody gets an answer, until further notice; with `opening` nobody who asks how large this file is.

        To ask whether it is there is another thing: that is answered until the file was read once.
        """
        self._say("hang", opening)

    def go_on(self) -> None:
        self._say("go on", None)

    def asked(self) -> list[str]:
        """What was asked since the last time."""
        return list(self._say("asked", None))

    def _say(self, word: str, value: int | str | None) -> list[str]:
        self._told.write(json.dumps([word, value]) + "\n")
        self._told.flush()
        answer: list[str] = json.loads(self._said.readline())
        return answer


@contextmanager
def object_store(root: Path) -> Iterator[ObjectStore]:
    command = [sys.executable, __file__, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield ObjectStore(process.stdout.readline().strip(), process.stdin, process.stdout)
        finally:
            process.kill()


class _Shelf:
    """What the serving process knows."""

    def __init__(self, root: Path) -> None:
        self.root, self.status = root, 0
        self.answering = threading.Event()
        self.answering.set()
        self.opening: str | None = None
        self.read = False
        self.asked: list[str] = []

    def heard(self, word: str, value: int | str | None) -> list[str]:
        asked, self.asked = self.asked, [] if word == "asked" else self.asked
        if word == "status":
            self.status = int(value or 0)
        elif word == "go on":
            self.answering.set()
        elif word == "hang":
            self.opening, self.read = None if value is None else str(value), False
            self.answering.clear()
        return asked if word == "asked" else []

    def wait(self, command: str, key: str) -> None:
        if self.opening is None or (self.read and (command, key) == ("HEAD", self.opening)):
            self.answering.wait()
        self.read |= (command, key) == ("GET", self.opening)


def serve(store: _Shelf) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
            store.asked.append(f"{self.command} {key or 'list'}")
            store.wait(self.command, key)
            if store.status:
                self._send(store.status, b"<Error><Code>Refused</Code><Message>refused</Message></Error>")
            elif not key:
                self._send(200, _listed(store.root, parse_qs(parts.query)))
            elif (file := store.root / key).is_file():
                self._file(file)
            else:
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")

        def _file(self, file: Path) -> None:
            body, stat = file.read_bytes(), file.stat()
            headers = {"ETag": f'"{stat.st_mtime_ns}"', "Last-Modified": formatdate(stat.st_mtime, usegmt=True)}
            asked = self.headers.get("Range")
            if asked is None:
                return self._send(200, body, headers)
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(len(body) - int(last), 0)
            end = min(int(last) + 1, len(body)) if first and last else len(body)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            return self._send(206, body[start:end], headers)

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _tell(f"http://127.0.0.1:{server.server_address[1]}")
    for line in sys.stdin:
        _tell(json.dumps(store.heard(*json.loads(line))))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _listed(root: Path, query: dict[str, list[str]]) -> bytes:
    """Everything below a prefix, in one page."""
    prefix, after = (query.get(name, [""])[0] for name in ("prefix", "start-after"))
    flat = "delimiter" not in query
    keys = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    entries, folders = [], set()
    for key in keys:
        if not key.startswith(prefix) or key <= after:
            continue
        rest = key.removeprefix(prefix)
        if flat or "/" not in rest:
            stat = (root / key).stat()
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f'<ETag>"{stat.st_mtime_ns}"</ETag><Size>{stat.st_size}</Size></Contents>'
            )
        else:
            folders.add(prefix + rest.split("/", 1)[0] + "/")
    common = "".join(
        f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)
    )
    head = f"<Name>{BUCKET}</Name><KeyCount>{len(entries)}</KeyCount><IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult>{head}{''.join(entries)}{common}</ListBucketResult>".encode()


if __name__ == "__main__":
    serve(_Shelf(Path(sys.argv[1])))
