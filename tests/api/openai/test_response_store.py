"""Stored responses: continued, shown, deleted; each key's apart, and bounded."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import openai
import pytest
from support.fake_daemon import Faked
from support.http_client import Client
from support.live_daemon import Live

from llamad.api.openai import responses_reading, responses_request
from llamad.api.openai.recall import REFERENCES_MAX, Recall
from llamad.api.request.errors import ApiError
from llamad.api.service.response_store import ResponseStore, Stored
from llamad.engine.testing.fake import Fake

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


def reference(id: str) -> dict[str, str]:
    return {"type": "item_reference", "id": id}


def test_a_stored_response_is_decoded_once() -> None:
    """246 references to items of one large response took seconds: each decoded all of it."""
    output = [{"id": f"item_{i}", "type": "message", "content": []} for i in range(246)]
    echo = {"metadata": {f"key {i}": "value" for i in range(50_000)}}
    store = ResponseStore()
    store.keep("key", "a", Stored.of({"output": output, **echo}, json.dumps(["x"] * 150_000).encode()))
    t_start = time.thread_time()
    items = Recall(store, "key").with_items([reference(item["id"]) for item in output])
    assert time.thread_time() - t_start < 0.5
    assert items == output
    recall = Recall(store, "key")
    assert recall.conversation("a") == ["x"] * 150_000 + output
    assert recall.with_items([reference("item_7"), "other"]) == [output[7], "other"]


def test_references_have_a_limit() -> None:
    store = ResponseStore()
    output = [{"id": f"item_{i}"} for i in range(REFERENCES_MAX + 1)]
    store.keep("key", "a", Stored.of({"output": output}, b"[]"))
    references = [reference(item["id"]) for item in output]
    assert Recall(store, "key").with_items(references[:-1]) == output[:-1]
    with pytest.raises(ApiError, match=f"at most {REFERENCES_MAX} references"):
        Recall(store, "key").with_items(references)
    with pytest.raises(ApiError, match=r'"input\[2\]" refers to the same item'):
        Recall(store, "key").with_items([references[0], references[1], references[0]])
    with pytest.raises(ApiError, match=r'"input\[0\]": the item that it refers to is not stored'):
        Recall(store, "key").with_items([{"type": "item_reference"}])


def test_stored_responses_have_the_limits_of_one_body() -> None:
    """Turn by turn a conversation could grow to more values than a decoder may take at once."""
    store = ResponseStore()
    for name in "ab":
        items = json.dumps([1] * 390_000).encode()
        store.keep("key", name, Stored.of({"output": [{"id": f"item_{name}"}]}, items))
    recall = Recall(store, "key")
    assert len(recall.conversation("a")) == 390_001
    with pytest.raises(ApiError, match="too many values"):
        recall.conversation("b")


def test_logprobs_are_shown_but_not_continued() -> None:
    part = {"type": "output_text", "text": "a", "logprobs": [{"token": "a"}]}
    made = Stored.of({"output": [{"id": "item", "content": [part]}]}, b"[]")
    assert b"logprobs" in made.body
    assert json.loads(made.output) == [{"id": "item", "content": [{"type": "output_text", "text": "a"}]}]


def test_a_large_conversation_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    into_chat = responses_request.into_chat

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return into_chat(*given)

    monkeypatch.setattr(responses_reading, "into_chat", watched)
    with Faked(Fake(n_ctx=65536, n_batch=2048), n_ctx=65536, n_batch=2048) as server:
        small = ask(server.client, "Hi")
        ask(server.client, "Hi", previous_response_id=small["id"])
        large = ask(server.client, "Hi " * 8000)
        loop, _, worker = threads
        assert worker.startswith("llamad-json")
        assert not loop.startswith("llamad-json")
        threads.clear()
        ask(server.client, "Hi", previous_response_id=large["id"])
        count = {"input": "Hi", "previous_response_id": large["id"]}
        assert server.client.post(f"{RESPONSES}/input_tokens", count).status == 200
        assert [name.split("_")[0] for name in threads] == ["llamad-json"] * 2


def stored(name: str, n_bytes: int = 100) -> Stored:
    made = Stored.of({"output": [{"id": f"item_{name}"}]}, b"")
    return Stored.of({"output": [{"id": f"item_{name}"}]}, b" " * (n_bytes - made.n_bytes))


def test_the_least_recently_used_go_first() -> None:
    store = ResponseStore(kept_max=3, bytes_max=400)
    for name in "abc":
        store.keep("key", name, stored(name))
    assert store.find("key", "a") is not None
    store.keep("key", "d", stored("d"))  # one too many
    assert [name for name in "abcd" if store.find("key", name)] == ["a", "c", "d"]
    assert store.holding("key", "item_b") is None
    store.keep("key", "e", stored("e", 250))  # too many bytes
    assert [name for name in "acde" if store.find("key", name)] == ["d", "e"]
    assert store.holding("key", "item_d") is store.find("key", "d")
    store.keep("other", "f", stored("f", 400))  # another key's share
    assert store.find("key", "e") is not None
    assert store.can_keep(400)
    assert not store.can_keep(401)
    assert store.drop("key", "e")
    assert not store.drop("key", "e")
    assert not store.drop("nobody", "e")
