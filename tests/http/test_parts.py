"""The parts that need no socket: routes, origins, events, limits, targets and heads."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import pytest
from support.http_wires import limits

from llamad.http import response_head, sse
from llamad.http.access_log import escape
from llamad.http.body import COPIED_MAX, ChunkedBody, LengthBody
from llamad.http.cors import Cors
from llamad.http.errors import HttpError
from llamad.http.limits import OFF_AT_0, Limits, raise_nofile
from llamad.http.request import Request, RequestIds, Response, parse_target, peer_name
from llamad.http.router import Route, Router


def handler(exchange: Any) -> None:
    raise AssertionError("a router calls nothing")


def router() -> Router:
    r = Router()
    for method, pattern in (
        ("GET", "/"),
        ("GET", "/props"),
        ("POST", "/props"),
        ("POST", "/slots/{id}"),
        ("GET", "/slots/{id}"),
        ("GET", "/slots/all"),
        ("GET", "/v1/slots/{id}/info"),
        ("POST", "/{any}/{id}"),
        ("GET", "/models/{id...}"),
    ):
        r.add(Route(method, pattern, handler))
    return r


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/", "GET /"),
        ("HEAD", "/props", "GET /props"),
        ("POST", "/props", "POST /props"),
        ("PUT", "/props", ["GET", "HEAD", "OPTIONS", "POST"]),
        ("OPTIONS", "/props", ["GET", "HEAD", "OPTIONS", "POST"]),
        ("GET", "/slots/3", "GET /slots/{id}"),
        ("GET", "/slots/all", "GET /slots/all"),
        ("POST", "/slots/3", "POST /slots/{id}"),
        ("POST", "/other/3", "POST /{any}/{id}"),
        ("DELETE", "/other/3", ["OPTIONS", "POST"]),
        ("GET", "/models/one", "GET /models/{id...}"),
        ("GET", "/models//one/of/many/", "GET /models/{id...}"),
        ("POST", "/models/one", "POST /{any}/{id}"),
        ("PUT", "/models/a/b", ["GET", "HEAD", "OPTIONS"]),
        ("GET", "/models/", None),
        ("GET", "/models", None),
        ("GET", "/slots/", None),
        ("GET", "/slots", None),
        ("GET", "/props/", None),
        ("GET", "/v1/slots/7/info", "GET /v1/slots/{id}/info"),
        ("GET", "/v1/slots//info", None),
        ("GET", "", None),
        ("GET", "*", None),
    ],
)
def test_match(method: str, path: str, found: str | list[str] | None) -> None:
    result = router().match(method, path)
    if isinstance(result, Route):
        assert f"{result.method} {result.pattern}" == found
    else:
        assert result == found


def test_params_and_labels() -> None:
    r = router()
    route = r.match("GET", "/v1/slots/7/info")
    assert isinstance(route, Route)
    assert route.params("/v1/slots/7/info") == {"id": "7"}
    assert route.name == "/v1/slots/{id}/info"
    assert Route("GET", "/a", handler, name="alias").name == "alias"


@pytest.mark.parametrize("pattern", ["/props", "/slots/{id}"])
def test_a_route_cannot_be_added_twice(pattern: str) -> None:
    with pytest.raises(ValueError, match="already there"):
        router().add(Route("GET", pattern, handler))


def test_a_pattern_starts_with_a_slash() -> None:
    with pytest.raises(ValueError, match="must start with /"):
        Route("GET", "props", handler)


@pytest.mark.parametrize(
    "text", ["https://a.example/path", "a.example", "https://", "https://*", "", "https://a b"]
)
def test_what_is_no_origin(text: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        Cors([text])


def test_origins_are_compared_in_a_browsers_spelling() -> None:
    cors = Cors(["HTTPS://A.example/", "null"])
    for origin in ("https://a.example", "null"):
        assert f"Allow-Origin: {origin}\r\n" in cors.verdict("GET", {"origin": origin}).lines
    assert "Allow-Origin" not in cors.verdict("GET", {"origin": "https://b.example"}).lines


@pytest.mark.parametrize("wanted", ["a\r\nX-Forged: 1", "", "x" * 5000, "a:b"])
def test_a_preflight_echoes_only_names(wanted: str) -> None:
    headers = {"origin": "https://a", "access-control-request-method": "GET"}
    headers["access-control-request-headers"] = wanted
    response = Cors().preflight(Request("OPTIONS", "/", {}, headers, "id", "peer", 0.0))
    assert "Access-Control-Allow-Headers" not in dict(response.headers)


def test_events() -> None:
    assert sse.format_event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert sse.format_event(b"a\nb\r\nc\rd") == b"data: a\ndata: b\ndata: c\ndata: d\n\n"
    assert sse.format_event(b"x", b"ping") == b"event: ping\ndata: x\n\n"
    assert sse.format_event(b"") == b"data: \n\n"
    assert sse.PING.startswith(b":")
    assert sse.PING.endswith(b"\n\n")


@pytest.fixture
def nofile() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_raise_nofile(nofile: tuple[int, int]) -> None:
    hard = nofile[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    assert raise_nofile(100) == 256
    assert raise_nofile(300) == 300
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
    if hard != resource.RLIM_INFINITY:
        assert raise_nofile(hard + 1000) == hard


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        limits(**{name: -1 if name in OFF_AT_0 else 0})


@pytest.mark.parametrize("target", [b"http://", b"http://a:99999999/", b"a:443"])
def test_targets_that_are_none(target: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        parse_target(target)
    assert caught.value.status == 400


def test_target_without_a_path() -> None:
    assert parse_target(b"http://a?x=1") == ("/", b"x=1")


def test_ids() -> None:
    ids = RequestIds()
    assert ids.take_or_make("x") == "x"
    assert len({ids.make(), ids.make(), ids.take_or_make(None), ids.take_or_make("a\n")}) == 4


def test_peers() -> None:
    assert peer_name(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert peer_name(("::1", 80, 0, 0)) == "[::1]:80"
    assert peer_name(("::ffff:10.0.0.1", 80, 0, 0)) == "10.0.0.1:80"  # on a socket for both
    assert peer_name("") == "unix"
    assert peer_name(None) == "unix"


def test_escape() -> None:
    assert escape("/plain", 10) == "/plain"
    assert escape("/long-long", 5) == "/long..."
    assert escape('\x1b[31m"\\\x7f', 50) == "\\x1b[31m\\x22\\x5c\\x7f"


def test_status_lines() -> None:
    assert response_head.status_line(200) == "HTTP/1.1 200 OK\r\n"
    assert response_head.status_line(599) == "HTTP/1.1 599 Status 599\r\n"
    for status in (0, 100, 199, 600):
        with pytest.raises(ValueError):
            response_head.status_line(status)


@pytest.mark.parametrize(
    "header",
    [("A b", "x"), ("", "x"), ("A", "x\n"), ("A", "x\x00"), ("A", "\u20ac"), ("Connection", "close")],
)
def test_headers_that_cannot_be_sent(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError):
        response_head.headers_text((header,))


def test_response_defaults() -> None:
    response = Response()
    assert (response.status, response.body, response.headers) == (200, b"", ())
    assert response.content_type == "application/json; charset=utf-8"


@pytest.mark.parametrize("n_bytes", [1000, COPIED_MAX, COPIED_MAX + 1, 3 * COPIED_MAX])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_is_not_copied_when_it_is_whole(n_bytes: int, is_chunked: bool) -> None:
    """On the event loop the copy of 64 MB took 15 to 50 ms."""
    sent = bytes(range(256)) * (n_bytes // 256 + 1)
    sent = sent[:n_bytes]
    body = ChunkedBody(n_bytes) if is_chunked else LengthBody(n_bytes)
    data = b"%x\r\n" % n_bytes + sent + b"\r\n0\r\n\r\n" if is_chunked else sent
    for at in range(0, len(data), 100_000):
        body.feed(data[at : at + 100_000], 0)
    assert body.done
    whole = body.take()
    assert isinstance(whole, memoryview) == (n_bytes > COPIED_MAX)
    assert bytes(whole) == sent
    assert isinstance(whole, bytes) or whole.readonly
