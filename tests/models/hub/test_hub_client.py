"""Who gets a token, and who does not: redirects, other hosts, proxies, certificates."""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.hub.cache import Cache, gguf
from support.hub.server import Fault, HubServer

from llamad.models.hub.client import REDIRECTS_MAX, Client, shown
from llamad.models.hub.errors import HubError

MODEL = gguf()
NAME = "org/tiny-GGUF"
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
CERTIFICATE = Path(__file__).parents[2] / "http" / "tls_for_tests_only.pem"


@pytest.fixture(autouse=True)
def repo(hub: HubServer) -> None:
    hub.repos[NAME] = {"tiny-Q4_K_M.gguf": MODEL}
    hub.files["tiny.gguf"] = MODEL


def tokens(hub: HubServer) -> dict[str, set[str | None]]:
    """What each host was sent."""
    seen: dict[str, set[str | None]] = {}
    for one in hub.asked:
        seen.setdefault(one.host, set()).add(one.headers.get("Authorization"))
    return seen


def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(hub: HubServer, cache: Cache) -> None:
    cache.fetch("-hf", NAME, "--hf-token", TOKEN)
    assert tokens(hub) == {"127.0.0.1": {f"Bearer {TOKEN}"}, "localhost": {None}}


def test_a_redirect_within_the_hub_keeps_it(hub: HubServer, cache: Cache) -> None:
    """A repository that was renamed."""
    hub.faults["/api/models/org/old"] = [
        Fault(status=307, headers={"Location": f"/api/models/{NAME}/{what}"}) for what in ("refs", "tree/x")
    ]
    hub.repos["org/old"] = hub.repos[NAME]
    cache.fetch("-hf", "org/old", "--hf-token", TOKEN)
    assert tokens(hub)["127.0.0.1"] == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:1/x", "http://127.0.0.1.:{port}/x", "//localhost:{port}/x"]
)
def test_another_port_or_name_is_another_host(hub: HubServer, location: str) -> None:
    client = Client(hub.url, TOKEN)
    hub.faults["/files/"] = [Fault(status=302, headers={"Location": location.format(port=hub.port)})]
    with contextlib.suppress(HubError):  # nobody listens at another port
        client.open(f"{hub.url}files/tiny.gguf")
    assert [one.headers.get("Authorization") for one in hub.asked[1:]] == [None] * len(hub.asked[1:])


def test_an_address_elsewhere_gets_no_token(hub: HubServer, cache: Cache) -> None:
    cache.fetch("-mu", f"{hub.other_url}files/tiny.gguf", "--hf-token", TOKEN)
    assert tokens(hub) == {"localhost": {None}}
    cache.fetch("-mu", f"{hub.url}files/tiny.gguf", "--hf-token", TOKEN)
    assert tokens(hub)["127.0.0.1"] == {f"Bearer {TOKEN}"}


def test_a_password_in_an_address_goes_there_only_and_is_never_shown(
    hub: HubServer, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    hub.faults["/files/"] = [
        Fault(status=302, headers={"Location": f"{hub.other_url}files/tiny.gguf?signature=hunter3"}),
        Fault(status=503),
        Fault(status=302, headers={"Location": f"{hub.other_url}files/tiny.gguf?signature=hunter3"}),
    ]
    with caplog.at_level(logging.DEBUG):
        cache.fetch("-mu", f"http://me:hunter2@127.0.0.1:{hub.port}/files/tiny.gguf?key=hunter4")
    assert tokens(hub) == {"127.0.0.1": {"Basic bWU6aHVudGVyMg=="}, "localhost": {None}}
    assert "status 503" in caplog.text
    assert "hunter" not in caplog.text


def test_errors_show_no_secret(hub: HubServer, cache: Cache) -> None:
    hub.always["/files/"] = Fault(status=403)
    with pytest.raises(HubError) as raised:
        cache.fetch(
            "-mu", f"http://me:hunter2@127.0.0.1:{hub.port}/files/tiny.gguf?key=hunter4", "-hft", TOKEN
        )
    assert "hunter" not in str(raised.value)
    assert TOKEN not in str(raised.value)
    assert shown("https://a:b@host:1/x?y#z") == "https://host:1/x"


@pytest.mark.parametrize("token", ["a b", "x\ny", "é"])
def test_a_token_that_is_none_is_refused_and_not_shown(hub: HubServer, token: str) -> None:
    with pytest.raises(HubError, match="copy it again") as raised:
        Client(hub.url, token)
    assert token not in str(raised.value)


def test_redirects_come_to_an_end(hub: HubServer) -> None:
    hub.always["/files/"] = Fault(status=302, headers={"Location": "/files/tiny.gguf"})
    with pytest.raises(HubError, match=f"more than {REDIRECTS_MAX} redirects"):
        Client(hub.url).open(f"{hub.url}files/tiny.gguf")
    assert len(hub.asked) == REDIRECTS_MAX + 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x", "http://[", "http://a:b"]
)
def test_redirects_lead_to_http_only(hub: HubServer, location: str) -> None:
    hub.always["/files/"] = Fault(status=302, headers={"Location": location})
    with pytest.raises(HubError, match=r"not an address|invalid"):
        Client(hub.url).open(f"{hub.url}files/tiny.gguf")


@pytest.mark.parametrize("endpoint", ["hub.example", "ftp://hub.example/", "http://", "http://a:b:c/"])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(HubError, match=r"not an address|invalid"):
        Client(endpoint)


def test_a_proxy_of_the_environment_is_used(
    hub: HubServer, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", hub.url)
    monkeypatch.setenv("no_proxy", "")
    hub.faults["/"] = [Fault(status=404)]
    with Client("http://hub.invalid/", TOKEN).open("http://hub.invalid/x") as answer:
        assert answer.status == 404
    assert [(one.host, one.path) for one in hub.asked] == [("hub.invalid", "http://hub.invalid/x")]
    monkeypatch.setenv("no_proxy", "hub.invalid")
    with pytest.raises(HubError, match=r"hub.invalid/x cannot be reached") as raised:
        Client("http://hub.invalid/").open("http://hub.invalid/x")
    assert raised.value.is_outage


class Redirecting(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://localhost:1/x")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def secure() -> Iterator[str]:
    """The address of a host with TLS, and a certificate of its own."""
    server = HTTPServer(("127.0.0.1", 0), Redirecting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"https://localhost:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_a_certificate_of_nobody_is_not_trusted(secure: str) -> None:
    with pytest.raises(HubError, match=r"its certificate is not trusted .* SSL_CERT_FILE") as raised:
        Client(secure).open(secure)
    assert not raised.value.is_outage


def test_no_redirect_leads_out_of_tls(secure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with pytest.raises(HubError, match="redirects from https to http"):
        Client(secure, TOKEN).open(secure)
