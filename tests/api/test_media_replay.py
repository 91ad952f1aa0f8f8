"""Chats with images: turns that come back have the tokens that were generated, and what was computed again is told. The
model has a token for each byte, and draws others for a space than the tokenizer."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_daemon import Live
from support.media_files import image
from support.models.tiny_kv_models import N_EMBD, write_model
from support.models.tiny_projectors import write_projector

SAID = "Sure, I see a small picture with some colours in it."
OPTIONS = {"grammar": f'root ::= "{SAID}"', "temperature": 1.0, "seed": 7}
MANGLED = f" {SAID}\n\n"
N_ADDED = len(MANGLED) - len(SAID)
TEMPLATE = """{% for m in messages %}[{{ m.role }}] {% if m.content is string %}{{ m.content }}{% else %}
{%- for part in m.content %}{{ part.text }}{% endfor %}{% endif %}</s>{% endfor %}
{%- if add_generation_prompt %}[assistant] {% endif %}"""
NOTES = "; ".join(f"note {i} is old" for i in range(12))
RULES = " ".join(f"Rule {i}: be brief." for i in range(12))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: Any) -> Iterator[dict[str, Live]]:
    folder: Path = tmp_path_factory.mktemp("replay")
    model = write_model(folder / "model.gguf", "qwen2vl", np.float32)
    projector = write_projector(folder / "projector.gguf", "qwen2vl_merger", N_EMBD)
    (folder / "template.jinja").write_text(TEMPLATE)
    flags: tuple[str, ...] = ("-c", "4096", "-np", "1", "--no-warmup", "--slots", "--mmproj", projector)
    flags += ("--chat-template-file", str(folder / "template.jinja"))
    with Live(*flags, model=model) as replaying, Live(*flags, "--no-replay", model=model) as plain:
        yield {"replaying": replaying, "plain": plain}


def uri(seed: int) -> str:
    return "data:image/png;base64," + base64.b64encode(image(seed, size=(64, 48))).decode()


def look(seed: int, text: str = "What is it?") -> dict[str, Any]:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": uri(seed)}}]
    return {"role": "user", "content": parts}


def answer(text: str = MANGLED) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def ask(server: Live, *messages: dict[str, Any], path: str = "/v1/chat/completions") -> dict[str, Any]:
    got = server.client.post(path, {"messages": list(messages), **OPTIONS})
    assert got.status == 200, got.body
    value: dict[str, Any] = got.json
    return value


def n_prompt(got: dict[str, Any]) -> int:
    n: int = got["usage"]["prompt_tokens"]
    return n


def test_each_turn_costs_only_its_new_tokens(servers: dict[str, Live]) -> None:
    server = servers["replaying"]
    messages = [{"role": "system", "content": RULES}, look(1)]
    for i in range(3):
        got = ask(server, *messages)
        assert got["choices"][0]["message"]["content"] == SAID
        messages += [answer(), look(i, "And this?") if i != 1 else look(1)]
    last = ask(server, *messages)
    n_cached = last["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert n_cached >= got["usage"]["total_tokens"] - 1
    counted = server.client.post("/v1/chat/completions/input_tokens", {"messages": messages}).json
    assert counted["input_tokens"] == n_prompt(last)
    assert n_prompt(ask(servers["plain"], *messages)) >= n_prompt(last) + 3 * N_ADDED


def test_an_image_in_a_later_turn_and_another_image(servers: dict[str, Live]) -> None:
    server = servers["replaying"]
    asked = {"role": "user", "content": "Hello?"}
    first = ask(server, asked)
    then = ask(server, asked, answer(), look(2))
    assert then["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
    # The answer belongs to the image that it followed.
    ask(server, look(3))
    same, other = ask(server, look(3), answer(), asked), ask(server, look(4), answer(), asked)
    assert n_prompt(other) >= n_prompt(same) + N_ADDED


def test_an_image_in_the_dialect_of_messages(servers: dict[str, Live]) -> None:
    server = servers["replaying"]
    source = {"type": "base64", "media_type": "image/png", "data": uri(5).partition(",")[2]}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "Well?"}]}
    ]

    def usage() -> dict[str, int]:
        got = server.client.post("/v1/messages", {"messages": messages, "max_tokens": 100, **OPTIONS})
        assert got.status == 200, got.body
        value: dict[str, int] = got.json["usage"]
        return value

    first = usage()
    messages += [answer(), {"role": "user", "content": "And now?"}]
    n_first = first["input_tokens"] + first["cache_read_input_tokens"] + first["output_tokens"]
    assert usage()["cache_read_input_tokens"] >= n_first - 1


def test_a_marker_that_a_client_writes_is_text(servers: dict[str, Live]) -> None:
    """A digest of the file takes the place of the secret in a marker for comparisons only."""
    server = servers["replaying"]
    shown = server.client.post("/apply-template", {"messages": [look(1)]}).json["prompt"]
    assert "<__media__>" in shown
    digest = blake2b(uri(1).encode(), digest_size=12).hexdigest()
    text = f"<__media__><__media_0_0__><__media_{digest}_0__>"
    ask(server, look(1, text))
    got = ask(server, look(1, text), answer(), look(1))
    ask(server, look(1, ""))
    without = ask(server, look(1, ""), answer(), look(1))
    assert n_prompt(got) == n_prompt(without) + len(text)


def test_what_was_computed_again_around_an_image(servers: dict[str, Live]) -> None:
    server = servers["plain"]

    def miss(*messages: dict[str, Any]) -> dict[str, Any]:
        got: dict[str, Any] = ask(server, *messages)["timings"].get("cache_miss", {})
        return {name: str(value).replace("\u2581", " ") for name, value in got.items()}

    system = {"role": "system", "content": RULES}
    ask(server, {"role": "user", "content": "Something else."})
    assert miss(system, look(1), answer(), look(2, NOTES)) == {}
    changed = miss(
        {"role": "system", "content": RULES.replace("Rule 0", "Law 0")}, look(1), answer(), look(2, NOTES)
    )
    assert (changed["part"], changed["reason"]) == ("system", "changed")
    assert changed["was"].startswith("Rule 0")
    assert changed["is"].startswith("Law 0")
    other = miss(
        {"role": "system", "content": RULES.replace("Rule 0", "Law 0")}, look(3), answer(), look(2, NOTES)
    )
    assert (other["part"], other["reason"]) == ("message 1", "changed")
    assert other["was"].startswith("<__media__>")
    assert other["is"].startswith("<__media__>")
    assert len(other["was"]) <= 80 >= len(other["is"])
