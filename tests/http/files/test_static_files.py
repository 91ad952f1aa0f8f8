"""Static files over a real socket: what a browser and curl see, on a disk that changes and for clients that dawdle."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from llamad.http.files import library, static_files
from llamad.http.files.folder import Folder
from llamad.http.files.static_files import Source, StaticFiles
from llamad.http.router import Route

TEXT = b"function f() { return 1 }\n" * 100
OLD = 1_700_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "www"
    (folder / "sub dir").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>hello</h1>")
    (folder / "sub dir" / "index.html").write_text("below")
    (folder / "app.js").write_bytes(TEXT)
    (folder / "noise.bin").write_bytes(os.urandom(100_000))
    (folder / "empty.txt").touch()
    for file in folder.rglob("*.*"):
        os.utime(file, (OLD, OLD))
    return folder


@pytest.fixture
def serve_files(serve: Any, root: Path) -> Iterator[Callable[..., Any]]:
    made: list[StaticFiles] = []

    def start(*sources: Source, **limits: Any) -> Any:
        h = serve(**limits)
        files = StaticFiles(sources or [Source(Folder(str(root)))], h.app.error)
        made.append(files)
        h.app.router.files = Route("GET", "/", files.handle, public=True)
        return h

    yield start
    for files in made:
        files.close()


def test_a_file_and_what_is_said_about_it(serve_files: Any) -> None:
    h = serve_files()
    with h.connect() as c:
        reply = c.get("/app.js")
        assert (reply.status, reply.body) == (200, TEXT)
        assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
        assert reply.headers["vary"] == "Accept-Encoding"
        assert reply.headers["etag"].startswith('"')
        head = c.get("/app.js", method="HEAD")
        same = ("content-length", "etag", "content-type", "accept-ranges")
        assert [head.headers[name] for name in same] == [reply.headers[name] for name in same]
        assert c.get("/").body == b"<h1>hello</h1>"
        assert c.get("/noise.bin").headers["content-type"] == "application/octet-stream"
        assert c.get("/empty.txt").body == b""
        assert c.get("/hello?name=you").body == b"hello you"  # a route wins
        assert [c.get(path).status for path in ("/nope", "/..%2fx", "/%2e%2e/x", "/.x", "/%00", "/%ff")] == [
            404
        ] * 6
        assert c.post("/app.js", b"").status == 404


def test_a_folder_is_redirected_to_itself(serve_files: Any) -> None:
    h = serve_files()
    with h.connect() as c:
        reply = c.get("/sub%20dir?x=1")
        assert (reply.status, reply.headers["location"]) == (301, "./sub%20dir/")
        assert c.get("/sub%20dir/").body == b"below"
        assert c.get("//example.com").status == 404


def test_gzip_is_negotiated_and_made_once(serve_files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped = Mock(wraps=library._zip)
    monkeypatch.setattr(library, "_zip", zipped)
    h = serve_files()
    with h.connect() as c:
        for _ in range(3):
            reply = c.get("/app.js", "Accept-Encoding: br, gzip")
            assert reply.headers["content-encoding"] == "gzip"
            assert gzip.decompress(reply.body) == TEXT
            assert len(reply.body) < len(TEXT) / 10
        plain = c.get("/app.js", "Accept-Encoding: gzip;q=0")
        assert plain.body == TEXT
        assert plain.headers["etag"] != reply.headers["etag"]
        assert reply.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert zipped.call_count == 1
        assert "content-encoding" not in c.get("/noise.bin", "Accept-Encoding: gzip").headers


def test_what_the_client_has_is_not_sent_again(serve_files: Any, root: Path) -> None:
    h = serve_files()
    with h.connect() as c:
        for more in ((), ("Accept-Encoding: gzip",)):
            tag = c.get("/app.js", *more).headers["etag"]
            reply = c.get("/app.js", f"If-None-Match: {tag}", *more)
            assert (reply.status, reply.headers["etag"]) == (304, tag)
            assert reply.headers["vary"] == "Accept-Encoding"
        assert c.get("/app.js", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT").status == 304
        assert c.get("/app.js", "If-Modified-Since: Tue, 14 Nov 2023 22:13:19 GMT").status == 200
        # The same size and time, but other bytes.
        (root / "app.js").write_bytes(TEXT.replace(b"1", b"2"))
        os.utime(root / "app.js", (OLD, OLD))
        reply = c.get("/app.js", f"If-None-Match: {tag}")
        assert (reply.status, reply.body) == (200, TEXT.replace(b"1", b"2"))


def test_ranges(serve_files: Any) -> None:
    h = serve_files()
    with h.connect() as c:
        reply = c.get("/app.js", "Range: bytes=10-19", "Accept-Encoding: gzip")
        assert (reply.status, reply.body) == (206, TEXT[10:20])
        assert reply.headers["content-range"] == f"bytes 10-19/{len(TEXT)}"
        assert "content-encoding" not in reply.headers
        assert c.get("/app.js", "Range: bytes=-5").body == TEXT[-5:]
        refused = c.get("/app.js", f"Range: bytes={len(TEXT)}-")
        assert (refused.status, refused.headers["content-range"]) == (416, f"bytes */{len(TEXT)}")
        assert c.get("/app.js", "Range: bytes=0-4", f"If-Range: {reply.headers['etag']}").status == 206
        assert c.get("/app.js", "Range: bytes=0-4", 'If-Range: "other"').body == TEXT
        assert c.get("/app.js", "Range: bytes=0-4", method="HEAD").status == 200
        assert c.get("/app.js", "Range: bytes=0-4,8-9").body == TEXT


def test_the_first_folder_that_has_a_file_serves_it(serve_files: Any, root: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "index.html").write_text("mine")
    page = Source(Folder(str(root)), (("X-Page", "1"),), frozenset({"/app.js"}))
    h = serve_files(Source(Folder(str(own))), page)
    with h.connect() as c:
        assert c.get("/").body == b"mine"
        reply = c.get("/app.js")
        assert (reply.body, reply.headers["x-page"]) == (TEXT, "1")
        assert c.get("/noise.bin").status == 404
        (own / "app.js").write_text("mine too")
        assert c.get("/app.js").body == b"mine too"


# Large files, which are made small for these tests.


@pytest.fixture
def large(root: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(library, "SMALL_MAX", 1000)
    monkeypatch.setattr(static_files, "PIECE", 10_000)
    return (root / "noise.bin").read_bytes()


def test_a_large_file_comes_in_pieces(serve_files: Any, large: bytes, root: Path) -> None:
    h = serve_files()
    with h.connect() as c:
        reply = c.get("/noise.bin")
        assert (reply.status, reply.body) == (200, large)
        assert reply.headers["content-length"] == str(len(large))
        assert reply.headers["etag"].startswith('W/"')  # it was written just now
        assert c.get("/noise.bin", f"If-None-Match: {reply.headers['etag']}").status == 304
        part = c.get("/noise.bin", "Range: bytes=50000-70000")
        assert (part.status, part.body) == (206, large[50000:70001])
        assert c.get("/noise.bin", "Range: bytes=100000-").status == 416
        head = c.get("/noise.bin", method="HEAD")
        assert head.headers["content-length"] == str(len(large))
        assert c.get("/hello?name=you").body == b"hello you"  # the connection goes on
        assert "content-encoding" not in c.get("/app.js", "Accept-Encoding: gzip").headers
        c.send(b"GET /noise.bin HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        old = c.read()
        assert (old.body, old.headers["connection"]) == (large, "keep-alive")


def test_a_large_file_that_nobody_touched_has_a_strong_tag(
    serve_files: Any, large: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "FRESH_SECONDS", 0)
    h = serve_files()
    with h.connect() as c:
        tag = c.get("/noise.bin").headers["etag"]
        assert tag.startswith('"')
        assert c.get("/noise.bin", "Range: bytes=0-4", f"If-Range: {tag}").body == large[:5]


@pytest.mark.parametrize("change", ["write", "replace", "shrink", "remove"])
def test_a_large_file_that_changes_is_cut_off(
    serve_files: Any, large: bytes, root: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client must never take the halves of two files for one."""
    file = root / "noise.bin"
    real = library.Library.read

    def read(self: library.Library, found: library.StoredFile, start: int, length: int) -> bytes:
        if start == 30_000:
            if change == "write":
                with file.open("r+b") as opened:
                    opened.write(b"!")
            elif change == "replace":
                other = root / "other"
                other.write_bytes(b"!" * len(large))
                other.replace(file)
            elif change == "shrink":
                os.truncate(file, 35_000)
            else:
                file.unlink()
        return real(self, found, start, length)

    monkeypatch.setattr(library.Library, "read", read)
    h = serve_files()
    with h.connect() as c:
        reply = c.get("/noise.bin")
        assert reply.status == 200
        assert not reply.whole
        assert reply.body == large[: len(reply.body)]
        assert len(reply.body) <= 30_000
    h.wait_quiet()


def test_a_slow_reader_holds_a_piece_and_no_descriptor(
    serve_files: Any, root: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 50_000_000
    with (root / "huge.bin").open("wb") as file:
        file.truncate(size)
    pread = Mock(wraps=os.pread)
    monkeypatch.setattr(os, "pread", pread)
    h = serve_files()
    with h.connect() as slow, h.connect() as other:
        slow.send(b"GET /huge.bin HTTP/1.1\r\nHost: test\r\n\r\n")
        assert slow.read_head().headers["content-length"] == str(size)
        connection = h.on_loop(lambda: next(one for one in h.server.connections if one.exchange is not None))
        until(lambda: connection.flow.write_paused, "a full buffer")
        opened = [
            os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)
        ]
        assert not [path for path in opened if path.endswith("huge.bin")]
        assert sum(call.args[1] for call in pread.call_args_list) < size / 2
        assert other.get("/app.js").body == TEXT
        n = len(slow.buffer)
        while n < size:
            n += len(slow.sock.recv(1 << 20))
        assert n == size
    with h.connect() as gone:
        gone.send(b"GET /huge.bin HTTP/1.1\r\nHost: test\r\n\r\n")
        gone.read_head()
        gone.reset()
    h.wait_quiet()


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_kept_files_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "KEPT_MAX", 20_000)
    kept = library.Library(Folder(str(root)))
    for i in range(30):
        (root / f"{i}.bin").write_bytes(bytes(3000))
    for i in range(30):
        kept.find([f"{i}.bin"])
        assert kept._n_bytes <= 20_000
        assert kept._n_bytes == sum(one.cost for one in kept._kept.values())
    assert kept.find(["29.bin"]) is kept.find(["29.bin"])
    assert "0.bin" not in kept._kept


def test_a_file_that_is_written_while_it_is_read_is_not_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = library.Library(Folder(str(root)))
    real = library._read

    def read(file: int, size: int) -> bytes:
        data = real(file, size)
        with (root / "app.js").open("ab") as opened:
            opened.write(b"more")
        return data

    monkeypatch.setattr(library, "_read", read)
    assert kept.find(["app.js"]).data == TEXT
    assert kept._kept == {}


def test_a_disk_that_fails_is_an_error_of_the_server(
    serve_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(library, "_read", fail)
    h = serve_files()
    with h.connect() as c:
        assert c.get("/app.js").status == 500
        assert c.get("/hello?name=you").status == 200


def test_a_slow_disk_delays_no_endpoint(serve_files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    monkeypatch.setattr(library, "_read", lambda *_: disk.wait(20) and b"late")
    h = serve_files()
    with h.connect() as slow, h.connect() as other:
        slow.send(b"GET /app.js HTTP/1.1\r\nHost: test\r\n\r\n")
        for _ in range(20):
            assert other.get("/hello?name=you").status == 200
        disk.set()
        assert slow.read().body == b"late"
