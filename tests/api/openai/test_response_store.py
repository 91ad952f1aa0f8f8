"""Stored responses: continued, shown, deleted; each key's apart, and bounded."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from support.http_client import Client
from support.live_daemon import Live

from llamad.api.service.response_store import ResponseStore, Stored

RESPONSES = "/v1/responses"


@pytest.fixture
def official(client: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{client.host}:{client.port}/v1", api_key="none", max_retries=0)


def ask(client: Any, input: Any, **more: Any) -> Any:
    answer = client.post(RESPONSES, {"input": input, "max_output_tokens": 4, "seed": 1, **more})
    assert answer.status == 200, answer.body
    return answer.json


def test_a_conversation_goes_on(official: openai.OpenAI) -> None:
    """Three turns, each with the ones before; the instructions are each turn's own."""
    asked: dict[str, Any] = {"model": "any", "max_output_tokens": 4, "extra_body": {"id_slot": 1}}
    first = official.responses.create(input="A river?", instructions="Be brief.", **asked)
    second = official.responses.create(input="Another?", previous_response_id=first.id, **asked)
    assert second.previous_response_id == first.id
    third = official.responses.create(input="One more?", previous_response_id=second.id, **asked)
    texts = [{"role": "user", "content": "A river?"}, {"role": "assistant", "content": first.output_text}]
    texts += [{"role": "user", "content": "Another?"}, {"role": "assistant", "content": second.output_text}]
    whole: Any = [*texts, {"role": "user", "content": "One more?"}]
    assert first.usage is not None
    assert third.usage is not None
    counted = official.responses.input_tokens.count(model="any", input=whole)
    assert third.usage.input_tokens == counted.input_tokens
    again = official.responses.input_tokens.count(
        model="any", input="One more?", previous_response_id=second.id
    )
    assert again.input_tokens == counted.input_tokens


def test_shown_and_deleted(official: openai.OpenAI) -> None:
    made = official.responses.create(model="any", input="Hi", max_output_tokens=4)
    assert made.store
    assert official.responses.retrieve(made.id) == made
    official.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="not stored"):
        official.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError, match="not stored"):
        official.responses.delete(made.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        official.responses.create(model="any", input="Hi", previous_response_id=made.id)


def test_streamed_ones_are_stored(client: Any) -> None:
    body = {"input": "Hi", "max_output_tokens": 4, "stream": True}
    answer = client.post(RESPONSES, body)
    events = [json.loads(line[6:]) for line in answer.body.split(b"\n") if line.startswith(b"data: {")]
    last = events[-1]["response"]
    assert client.get(f"{RESPONSES}/{last['id']}").json == last


def test_not_stored_if_not_wanted(client: Any) -> None:
    made = ask(client, "Hi", store=False)
    assert made["store"] is False
    assert client.get(f"{RESPONSES}/{made['id']}").status == 404


def test_items_can_be_referred_to(client: Any) -> None:
    made = ask(client, "Hi")
    (item,) = made["output"]
    reference = {"type": "item_reference", "id": item["id"]}
    turn = {"role": "user", "content": "Again"}
    assert (
        ask(client, [reference, turn])["usage"]["input_tokens"]
        == (ask(client, [item, turn])["usage"]["input_tokens"])
    )
    client.request("DELETE", f"{RESPONSES}/{made['id']}")
    refused = client.post(RESPONSES, {"input": [reference, turn]})
    assert refused.status == 400
    assert '"input[0]"' in refused.error["message"]


def test_other_keys_responses_are_not_there(tiny: str) -> None:
    with Live("--api-key", "one,two", "-c", "256", model=tiny) as server:
        host, port = server.client.host, server.client.port
        one, two = (Client(host, port, {"Authorization": f"Bearer {key}"}) for key in ("one", "two"))
        made = ask(one, "Hi")
        path = f"{RESPONSES}/{made['id']}"
        assert one.get(path).json == made
        assert two.get(path).status == two.request("DELETE", path).status == 404
        assert two.post(RESPONSES, {"input": "Hi", "previous_response_id": made["id"]}).status == 400
        reference = [{"type": "item_reference", "id": made["output"][0]["id"]}]
        assert two.post(RESPONSES, {"input": reference}).status == 400
        assert server.client.get(path).status == 401


def stored(name: str, n_bytes: int = 100) -> Stored:
    body = json.dumps({"output": [{"id": f"item_{name}"}]}).encode()
    return Stored(body, b" " * (n_bytes - len(body)))


def test_the_least_recently_used_go_first() -> None:
    store = ResponseStore(kept_max=3, bytes_max=400)
    for name in "abc":
        store.keep("key", name, stored(name))
    assert store.find("key", "a") is not None
    store.keep("key", "d", stored("d"))  # one too many
    assert [name for name in "abcd" if store.find("key", name)] == ["a", "c", "d"]
    assert store.item("key", "item_b") is None
    store.keep("key", "e", stored("e", 250))  # too many bytes
    assert [name for name in "acde" if store.find("key", name)] == ["d", "e"]
    assert store.item("key", "item_d") == {"id": "item_d"}
    store.keep("other", "f", stored("f", 400))  # another key's share
    assert store.find("key", "e") is not None
    assert store.can_keep(400)
    assert not store.can_keep(401)
    assert store.drop("key", "e")
    assert not store.drop("key", "e")
    assert not store.drop("nobody", "e")
