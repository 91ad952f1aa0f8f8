"""POST /api/generate through the official `ollama` package: prompts with and without a template, context, infilling."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.official_clients import ollama
from support.fake_daemon import Faked
from support.live_daemon import Live
from support.media_files import image
from support.models import bigram_model
from support.models.tiny_projectors import write_projector

from llamad.engine.testing.fake import Fake

PATH = "/api/generate"
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
N_ROWS = 16


def client_of(client: Any) -> Any:
    return ollama.Client(host=f"http://{client.host}:{client.port}")


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    flags = ("--slots", "--chat-template", TEMPLATE, "-a", "smol")
    with Faked(Fake(script=b"One two three.", n_ctx=2048), *flags, n_ctx=2048) as made:
        yield made


@pytest.fixture
def official(server: Faked) -> Iterator[Any]:
    with client_of(server.client) as made:
        yield made


def text_of(server: Faked, tokens: list[int]) -> str:
    return str(server.client.post("/detokenize", {"tokens": tokens}).json["content"])


def test_whole_and_streamed(official: Any) -> None:
    reply = official.generate("smol", "Count.")
    assert (reply.response, reply.done, reply.done_reason) == ("One two three.", True, "stop")
    assert reply.total_duration > 0
    *pieces, last = official.generate("smol", "Count.", stream=True)
    assert "".join(one.response for one in pieces) == "One two three."
    assert (last.response, last.done, last.eval_count) == ("", True, reply.eval_count)
    assert last.context[: last.prompt_eval_count] == reply.context[: reply.prompt_eval_count]


def test_the_context_goes_on(server: Faked, official: Any) -> None:
    first = official.generate("smol", "Count.", system="Be brief.")
    assert "<system>Be brief.<user>Count.<assistant>One two three." in text_of(server, first.context)
    second = official.generate("smol", "Again.", context=first.context)
    assert second.context[: len(first.context)] == first.context
    assert text_of(server, second.context[len(first.context) :]).startswith("<user>Again.<assistant>")
    assert second.prompt_eval_count > len(first.context)


def test_raw(server: Faked, official: Any) -> None:
    reply = official.generate("smol", "abc", raw=True)
    assert reply.response == "One two three."
    assert reply.prompt_eval_count == len("abc") + 1  # and BOS
    assert reply.context is None


def test_options_formats_and_logprobs(official: Any) -> None:
    assert official.generate("smol", "x", options={"num_predict": 3}).response == "One"
    for raw in (False, True):
        reply = official.generate(
            "smol", "x", raw=raw, logprobs=True, top_logprobs=1, options={"num_predict": 2}
        )
        assert [(one.token, len(one.top_logprobs)) for one in reply.logprobs] == [("O", 1), ("n", 1)]
        schema = {"enum": ["a", "b"]}
        reply = official.generate("smol", "x", raw=raw, format=schema, options={"num_predict": 50})
        assert json.loads(reply.response) in ("a", "b")


def test_thinking() -> None:
    with Faked(
        Fake(script=b"<think>Hm.</think>Yes."), "--chat-template", "{% if think %}<think></think>{% endif %}x"
    ) as server:
        reply = client_of(server.client).generate("m", "x", think=True)
        assert (reply.thinking, reply.response) == ("Hm.", "Yes.")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"prompt": 5}, 400, '"prompt" must be a string'),
        ({"template": "{{ .Prompt }}"}, 400, '"template" is not supported'),
        ({"raw": True, "system": "x"}, 400, '"raw" cannot be combined'),
        ({"raw": True, "context": [1]}, 400, '"raw" cannot be combined'),
        ({"raw": True, "think": True}, 400, '"think" cannot be combined'),
        ({"context": ["a"]}, 400, '"context" must be an array of token ids'),
        ({"context": [1.5]}, 400, '"context" must be an array of token ids'),
        ({"context": [99999]}, 400, "token id 99999 is outside the vocabulary"),
        ({"context": [-1]}, 400, "token id -1 is outside the vocabulary"),
        ({"images": [5]}, 400, '"images" must be an array of images'),
        ({"images": ["aGk="]}, 501, "text only"),
        ({"images": ["aGk="], "raw": True}, 501, "images"),
        ({"suffix": "x"}, 501, '"suffix": This model cannot infill'),
        ({"width": 64}, 501, "this model generates text"),
        ({"think": True}, 400, '"m" does not support thinking'),
    ],
)
def test_wrong_requests(server: Faked, body: dict[str, Any], status: int, message: str) -> None:
    reply = server.client.post(PATH, {"model": "m", "prompt": "x", "stream": False, **body})
    assert reply.status == status
    assert message in reply.json["error"]


def test_a_request_without_a_prompt_loads_the_model(official: Any) -> None:
    reply = official.generate("smol")
    assert (reply.done, reply.done_reason, reply.response) == (True, "load", "")


def test_a_suffix(tmp_path: Path) -> None:
    """The text between prefix and suffix is that of /infill."""
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    model = bigram_model.write_bigram(tmp_path / "fim.gguf", names)
    options = {"num_predict": 5, "temperature": 0, "cache_prompt": False, "grammar": 'root ::= "l" [a-z]*'}
    with Live("-c", "512", model=str(model)) as live:
        reply = client_of(live.client).generate("m", "int a", suffix="return b;", options=options)
        body = {"input_prefix": "int a", "input_suffix": "return b;", "n_predict": 5, "temperature": 0}
        body |= {"grammar": options["grammar"], "cache_prompt": False}
        other = live.client.post("/infill", body).json
    assert reply.response == other["content"] != ""
    assert reply.prompt_eval_count == other["tokens_evaluated"]
    assert reply.context is None


def test_images(tiny: str, tmp_path: Path) -> None:
    """The picture is seen, in a chat, a prompt and a raw prompt; its name may stand in a raw prompt."""
    projector = write_projector(tmp_path / "janus.gguf", "janus_pro", 64)
    data = image(1)
    options = {"num_predict": 2, "temperature": 0}
    with Live("-np", "1", "-c", "2048", "--no-warmup", "--mmproj", projector, model=tiny) as live:
        official = client_of(live.client)
        message = {"role": "user", "content": "Look"}
        n_blind = official.chat("m", [message], options=options).prompt_eval_count
        n_seen = official.chat("m", [message | {"images": [data]}], options=options).prompt_eval_count
        assert n_seen >= n_blind + N_ROWS
        reply = official.generate("m", "Look", images=[data], options=options)
        assert reply.prompt_eval_count == n_seen
        assert reply.context is None
        body = {"role": "user", "content": "Look", "images": [b64encode(data).decode()]}
        streamed = official.chat("m", [body], stream=True, options=options)
        assert list(streamed)[-1].prompt_eval_count == n_seen
        counts = {
            official.generate("m", prompt, raw=True, images=[data], options=options).prompt_eval_count
            for prompt in ("Look", "[img-0]Look")
        }
        assert len(counts) == 1
        assert counts.pop() >= N_ROWS
        assert "vision" in official.show("m").capabilities
        with pytest.raises(ollama.ResponseError) as caught:
            official.generate("m", "Look", images=[b"no picture"], options=options)
        assert caught.value.status_code == 400
