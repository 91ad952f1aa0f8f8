"""Where files come from: data: URIs, a folder, the web; and all that must not be reached."""

import asyncio
import base64
import os
import time

import pytest

from llamad.media.sources import data_uri, local, text_images, web
from llamad.media.sources.errors import SourceError

PIXEL = "R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="
GIF = base64.b64decode(PIXEL)


@pytest.mark.parametrize(
    "uri",
    [
        f"data:image/gif;base64,{PIXEL}",
        f"data:image/anything;charset=x;BASE64,{PIXEL}",
        f"data:image/gif;base64,{PIXEL.rstrip('=')}",
        f"data:image/gif;base64,{PIXEL[:20]}\n {PIXEL[20:]}",
        f"data:image/gif;base64,{PIXEL.replace('/', '_').replace('+', '-')}",
        "data:image/gif," + "".join(f"%{one:02x}" for one in GIF),
    ],
)
def test_data_uris(uri):
    assert data_uri.from_uri(uri, ("image",)) == GIF


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("data:text/plain;base64,aaaa", "must begin with image/"),
        ("data:image/gif", "must be data:TYPE;base64,DATA"),
        ("data:image/gif;base64,***", "not base64"),
        ("data:;base64,aaaa", "must begin with image/"),
        ("data:image/gif," + "%41" * (2**18 + 1), "send it as base64"),
    ],
)
def test_wrong_data_uris(uri, says):
    with pytest.raises(SourceError, match=says):
        data_uri.from_uri(uri, ("image",))


def test_images_within_text():
    """LLaMAfiler's two forms, and its URIs by themselves, in their order."""
    uri = f"data:image/gif;base64,{PIXEL}"
    text = f"a ![1x1.gif]({uri}) b <img alt='x' src=\"{uri}\"> c ![no](http://x/y.png) d {uri} e"
    expected = ["a ", GIF, " b ", GIF, " c ![no](http://x/y.png) d ", GIF, " e"]
    assert text_images.split_text(text) == expected
    text = f"![]( {uri} \"a (b)\" )<IMG\nSRC = '{uri}' />({uri.replace('data:image', 'DATA:Image')})"
    assert text_images.split_text(text) == [GIF, GIF, "(", GIF, ")"]
    assert text_images.split_text("") == [""]


@pytest.mark.parametrize(
    "text",
    [
        "as in data:image/png;base64,iVBOR... of a page",
        "data:image/png;base64,AAAA",
        "data:image/png",
        f"data:text/gif;base64,{PIXEL}",
        "![no end](data:image/png;base64,AAAA",
        '<img src="data:image/png;base64,AAAA"',
        '<imgsrc="data:image/png;base64,AAAA">',
    ],
)
def test_text_that_holds_no_image(text):
    assert text_images.split_text(text) == [text]


def test_what_is_shown_as_an_image_must_be_one():
    for text in ("![x](data:image/png;base64,*)", '<img src="data:image/png">'):
        with pytest.raises(SourceError):
            text_images.split_text(text)


@pytest.mark.parametrize(
    "piece",
    [
        "![",
        'src="data:image/x" ',
        "![](data:image/",
        "![](data:image/ ",
        '<img src="data:image/',
        "<img src='data:image/x' ",
        "data:image/png;base64,",
        "<img src=\"data:image/x' ",
        "[](",
    ],
)
def test_a_long_text_is_searched_in_little_time(piece):
    """300 kB of the third took ten minutes: every beginning looked for an end."""
    text = "<img " + piece * (2**20 // len(piece)) + "data:image/"
    t_start = time.thread_time()
    assert "".join(text_images.split_text(text)) == text
    assert time.thread_time() - t_start < 5


def test_files(tmp_path):
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "a b.gif").write_bytes(GIF)
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    root = str(folder)
    assert local.read("file://a%20b.gif", root, 100) == GIF
    assert local.read(f"file://{folder}/a b.gif", root, 100) == GIF
    for path in ("../secret", str(tmp_path / "secret"), "link", "/etc/passwd", "sub/../../secret"):
        with pytest.raises(SourceError, match="below --media-path"):
            local.read(f"file://{path}", root, 100)
    for path, says in (
        ("pipe", "not a regular file"),
        ("", "not a regular file"),
        ("none", "cannot be opened"),
    ):
        with pytest.raises(SourceError, match=says):
            local.read(f"file://{path}", root, 100)
    with pytest.raises(SourceError, match="more than 10 bytes"):
        local.read("file://a b.gif", root, 10)
    with pytest.raises(SourceError, match="start the server with --media-path"):
        local.read("file://a b.gif", None, 100)


ANSWERS = {
    "/ok": b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok",
    "/moved": b"HTTP/1.1 302 x\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n",
    "/loop": b"HTTP/1.1 302 x\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n",
    "/inward": b"HTTP/1.1 302 x\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    "/file": b"HTTP/1.1 302 x\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    "/claims": b"HTTP/1.1 200 x\r\nContent-Length: 100000\r\n\r\n",
    "/large": b"HTTP/1.1 200 x\r\n\r\n" + b"a" * 100_000,
    "/chunks": b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "/junk": b"nonsense\r\n\r\n",
    "/none": b"",
    "/404": b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n",
    "/heads": b"HTTP/1.1 200 x\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
}


def fetched(*paths):
    """What each address on a host of our own gives, or says."""

    async def answer(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        writer.write(ANSWERS[path])
        writer.close()

    async def run():
        results = []
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for path in paths:
                try:
                    url = f"http://127.0.0.1:{port}{path}"
                    results.append(
                        await web.fetch(url, 1000, lambda one: one.is_loopback and str(one) == "127.0.0.1")
                    )
                except SourceError as error:
                    results.append(str(error))
        return results

    return asyncio.run(run())


def test_the_web():
    assert fetched("/ok", "/moved", "/chunks") == [b"ok", b"ok", b"abc"]
    says = fetched("/loop", "/inward", "/file", "/claims", "/large", "/junk", "/none", "/404", "/heads")
    expected = ["redirects", "not a public host", "only http", "more than 1000 bytes", "more than 1000 bytes"]
    expected += ["not HTTP", "without a response", "status 404", ""]
    assert all(isinstance(one, str) and two in one for one, two in zip(says, expected, strict=True)), says


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:80/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://10.1.2.3/x",
        "http://192.168.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.64.0.1/",
        "http://0.0.0.0/",
        "http://a:b@127.0.0.1/",
        "http://224.0.0.1/",
    ],
)
def test_what_only_this_machine_can_reach(url, connections):
    with pytest.raises(SourceError, match="is not a public host"):
        asyncio.run(web.fetch(url, 1000))
    assert connections == []


@pytest.mark.parametrize("url", ["ftp://x/", "http:///x", "http://[::1/", "x"])
def test_what_is_no_address(url):
    with pytest.raises(SourceError):
        asyncio.run(web.fetch(url, 1000))
