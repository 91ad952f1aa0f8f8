"""A model hub on this machine: its API, its files, a host for large ones, and whatever may go wrong with them.

It is reached under two names, 127.0.0.1 and localhost: the hub is the first, the host of its large files the second.
"""

from __future__ import annotations

import copy
import functools
import gzip
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
NEXT_COMMIT = "b" * 40
WAIT_SECONDS = 60


@dataclass
class Fault:
    """What is wrong with one answer."""

    status: int = 0  # instead of the right one
    headers: dict[str, str] = field(default_factory=dict)  # added, or in place of its own
    cut: int | None = None  # bytes after which the connection ends
    ranges: bool = True  # False: it does not know them
    garbled: bool = False
    compressed: bool = False
    data: bytes | None = None  # another body
    hold: threading.Event | None = None  # with `cut`: it waits there, and goes on


@dataclass
class Asked:
    """A request that came."""

    host: str
    path: str
    headers: dict[str, str]


class HubServer:
    """`repos` are files by path, by repository; `files` lie at /files/. `faults` are those of the next answers to paths
    that begin so, one for each."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.commit = COMMIT
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault | None]] = {}
        self.always: dict[str, Fault] = {}
        self.asked: list[Asked] = []
        self.pages = 1  # that a repository's files are listed on
        self.listed: list[dict[str, object]] = []  # entries that are no files of it
        server = self

        class Handler(_Handler):
            hub = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.other_url = f"http://localhost:{self.port}/"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def asked_for(self, start: str) -> list[Asked]:
        return [one for one in self.asked if one.path.startswith(start)]

    def fault(self, path: str) -> Fault | None:
        for start, faults in self.faults.items():
            if path.startswith(start) and faults:
                return faults.pop(0)
        return next(
            (copy.deepcopy(fault) for start, fault in self.always.items() if path.startswith(start)), None
        )

    def blob(self, oid: str) -> bytes | None:
        every = (data for files in self.repos.values() for data in files.values())
        return next((data for data in every if oid_of(data) == oid), None)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@functools.lru_cache
def oid_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(Asked(self.headers["Host"].partition(":")[0], self.path, dict(self.headers)))
        fault = hub.fault(path) or Fault()
        parts = path.strip("/").split("/")
        try:
            if fault.status:
                self._send(fault.status, fault.data or b"{}", fault)
            elif parts[:2] == ["api", "models"]:
                self._api("/".join(parts[2:4]), parts[4], fault)
            elif parts[0] == "blobs":
                self._contents(hub.blob(parts[1]), "", fault)
            elif parts[0] == "files":
                self._contents(hub.files.get(parts[1]), "etag", fault)
            else:
                self._resolve("/".join(parts[:2]), "/".join(parts[4:]), fault)
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.close_connection = True

    def _api(self, repo: str, what: str, fault: Fault) -> None:
        hub = self.hub
        if repo not in hub.repos:
            self._send(404, b'{"error":"Repository not found"}', fault)
        elif what == "refs":
            branches = [{"name": "main", "ref": "refs/heads/main", "targetCommit": hub.commit}]
            self._send(200, json.dumps({"branches": branches}).encode(), fault)
        else:
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": "0" * 40, "lfs": lfs_of(data)}
                for path, data in hub.repos[repo].items()
            ]
            entries += hub.listed
            at = int((urlsplit(self.path).query + "&page=0").partition("page=")[2].partition("&")[0])
            n = -(-len(entries) // hub.pages)
            if at + 1 < hub.pages:
                following = f"{hub.url.rstrip('/')}{urlsplit(self.path).path}?recursive=true&page={at + 1}"
                fault.headers.setdefault("Link", f'<{following}>; rel="next"')
            self._send(200, json.dumps(entries[at * n : (at + 1) * n]).encode(), fault)

    def _resolve(self, repo: str, path: str, fault: Fault) -> None:
        data = self.hub.repos.get(repo, {}).get(path)
        if data is None:
            self._send(404, b"", fault)
            return
        fault.headers.setdefault("Location", f"{self.hub.other_url}blobs/{oid_of(data)}?signature=secret")
        fault.headers.setdefault("X-Linked-ETag", f'"{oid_of(data)}"')
        self._send(302, b"", fault)

    def _contents(self, data: bytes | None, kind: str, fault: Fault) -> None:
        if data is None:
            self._send(404, b"", fault)
            return
        data = data if fault.data is None else fault.data
        if fault.garbled:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if kind == "etag":
            fault.headers.setdefault("ETag", f'"{hashlib.md5(data).hexdigest()}"')
            etag = fault.headers["ETag"]
            if etag and self.headers["If-None-Match"] == etag:
                self._send(304, b"", fault)
                return
            if self.headers["If-Range"] not in (None, etag):
                fault.ranges = False
        start = self.headers["Range"]
        if start is None or not fault.ranges:
            self._send(200, data, fault)
            return
        first = int(start.removeprefix("bytes=").rstrip("-"))
        if first >= len(data):
            self._send(416, b"", fault)
            return
        fault.headers.setdefault("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self._send(206, data[first:], fault)

    def _send(self, status: int, body: bytes, fault: Fault) -> None:
        headers = {"Content-Length": str(len(body)), **fault.headers}
        if fault.compressed:
            body = gzip.compress(body)
            headers |= {"Content-Encoding": "gzip", "Content-Length": str(len(body))}
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault.cut is None:
            self.wfile.write(body)
            return
        self.wfile.write(body[: fault.cut])
        self.wfile.flush()
        if fault.hold is not None:
            fault.hold.wait(WAIT_SECONDS)
            self.wfile.write(body[fault.cut :])


def lfs_of(data: bytes) -> dict[str, object]:
    return {"oid": oid_of(data), "size": len(data), "pointerSize": 130}
