"""Another request ends the reasoning of a running chat completion."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from support.fake_daemon import Faked
from support.http_client import TIMEOUT, Answer, Client

from llamad.engine.testing.fake import Fake

PATH = "/v1/chat/completions"
CONTROL = PATH + "/control"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "x"}],
    "temperature": 0,
    "max_tokens": 600,
    "reasoning_control": True,
}
DONE = {"success": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    """Slow, so that there is time to act. Behind "<think>" and "</think>" comes "?@ABC"."""
    flags = ("--chat-template", TEMPLATE, "-np", "2", "--api-key", "a,b")
    with Faked(Fake(n_ctx=1024, decode_us=5000), *flags, n_ctx=1024) as server:
        server.client.headers = {"Authorization": "Bearer a"}
        yield server


class Stream:
    """A chat that is read event by event."""

    def __init__(self, client: Client, **fields: Any) -> None:
        self._connection = HTTPConnection(client.host, client.port, timeout=TIMEOUT)
        body = json.dumps({**BODY, "stream": True, **fields}).encode()
        self._connection.request("POST", PATH, body, client.headers)
        self._events = iter(self._connection.getresponse())
        self.id = ""
        self.told = {"reasoning_content": "", "content": ""}

    def read(self, until: str = "") -> dict[str, str]:
        """To the end, or until there is text of this kind."""
        for line in self._events:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                self.id = event["id"]
                for choice in event["choices"]:
                    for name in self.told:
                        self.told[name] += choice["delta"].get(name) or ""
            if until and self.told[until]:
                return self.told
        self._connection.close()
        return self.told


def control(server: Faked, id: str, action: str = "reasoning_end", **options: Any) -> Answer:
    return server.client.post(CONTROL, {"id": id, "action": action}, **options)


def test_a_stream(server: Faked) -> None:
    stream = Stream(server.client, reasoning_budget_message=" Enough.", max_tokens=150)
    assert stream.read(until="reasoning_content")["content"] == ""
    other = {"Authorization": "Bearer b"}
    refused = control(server, stream.id, headers=other)
    assert (refused.status, refused.error["type"]) == (404, "not_found_error")
    assert control(server, stream.id).json == DONE
    assert control(server, stream.id).json == DONE  # again: it is over, and nothing changes
    told = stream.read()
    assert told["reasoning_content"].endswith(" Enough.")
    assert told["content"].startswith("?@ABC")
    assert control(server, stream.id).json == {
        "success": False,
        "message": "no active completion for this id",
    }
    assert len(server.daemon.service.running) == 0


def test_an_answer_that_is_not_streamed(server: Faked) -> None:
    """Its client knows the id of its request only."""
    answers: list[Answer] = []
    body = {**BODY, "n": 2, "json_schema": {"const": "Yes"}}

    def ask() -> None:
        answers.append(server.client.post(PATH, body, headers={"X-Request-Id": "mine"}))

    thread = threading.Thread(target=ask)
    thread.start()
    server.until(lambda: control(server, "mine").json == DONE)
    assert not control(server, "mine", headers={"Authorization": "Bearer b"}).json["success"]
    thread.join()
    for choice in answers[0].json["choices"]:
        assert choice["message"]["content"] == '"Yes"'
        assert len(choice["message"]["reasoning_content"]) < 500


def test_one_that_did_not_ask_for_it(server: Faked) -> None:
    stream = Stream(server.client, reasoning_control=False, max_tokens=100)
    stream.read(until="reasoning_content")
    answer = control(server, stream.id).json
    assert answer == {"success": False, "message": "reasoning control not enabled for this completion"}
    assert stream.read()["content"] == ""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"action": "reasoning_end"}, '"id"'),
        ({"id": "x", "action": "stop"}, '"action"'),
        ({"id": 1, "action": "reasoning_end"}, '"id"'),
    ],
)
def test_refused(server: Faked, body: dict[str, Any], says: str) -> None:
    answer = server.client.post(CONTROL, body)
    assert answer.status == 400
    assert says in answer.error["message"]
    both = server.client.post(PATH, {**BODY, "grammar": 'root ::= "</think>"'})
    assert (both.status, '"reasoning_control"' in both.error["message"]) == (400, True)
