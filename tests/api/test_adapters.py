"""LoRA adapters and control vectors over HTTP: scales of all and of a request, names, side by side; beside merged
weights, and llama-server where it was built."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.models.tiny_adapters import (
    RANK,
    pairs,
    write_adapter,
    write_control_vector,
    write_lora,
    write_merged,
)
from support.peer import llama_server

FLAGS = ("-np", "4", "-c", "4096", "--slots", "--no-warmup", "--cache-ram", "64", "--alias", "base")
DRAWN = {"temperature": 1.5, "seed": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "n_predict": 16}
# On some machines a prompt that is read in another shape has slightly other logits.
ALONE = {**DRAWN, "cache_prompt": False}
PROMPT = "Once upon a time there was a small house"
SEEDS = (11, 12, 13)
CHAT = "/v1/chat/completions"
TOKEN = 1000
# Logits depend on the shape of the batch. Two log probabilities that differ by less may be of the same weights.
NEAR = 0.05


class Files:
    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder
        self.model = model
        self.lora = [write_lora(folder / f"{seed}.gguf", model, seed) for seed in SEEDS]

    def merged(self, *adapters: tuple[int, float]) -> str:
        return write_merged(self.folder / f"merged{len(adapters)}.gguf", self.model, adapters)


@pytest.fixture(scope="module")
def files(tiny: str, tmp_path_factory: Any) -> Files:
    return Files(tmp_path_factory.mktemp("adapters"), tiny)


@pytest.fixture(scope="module")
def server(files: Files) -> Iterator[Client]:
    """Two for all with scale 0, and one by name."""
    flags = ("--lora", ",".join(files.lora[:2]), "--lora", f"extra={files.lora[2]}")
    with Live(*FLAGS, *flags, "--lora-init-without-apply", model=files.model) as live:
        yield live.client


def text(client: Client, **more: Any) -> str:
    answer = client.post("/completion", {"prompt": PROMPT, **ALONE, **more})
    assert answer.status == 200, answer.body
    content: str = answer.json["content"]
    return content


def scales(*pairs: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"id": number, "scale": scale} for number, scale in pairs]


def probabilities(client: Client, **more: Any) -> dict[int, float]:
    body = {"prompt": PROMPT, "n_predict": 1, "temperature": 0.0, "n_probs": 40, **more}
    logprobs = client.post("/completion", body).json["completion_probabilities"][0]["top_logprobs"]
    return {one["id"]: one["logprob"] for one in logprobs}


Steps = list[dict[int, float]]


def steps(client: Client, **more: Any) -> Steps:
    """Return the log probabilities of the likeliest tokens of each step. The text is always the same one: whichever
    token comes first in a near tie, the steps after it can be compared."""
    body = {
        "prompt": PROMPT,
        **ALONE,
        "temperature": 0.0,
        "n_predict": 60,
        "n_probs": 10,
        "return_tokens": True,
    }
    answer = client.post("/completion", {**body, "logit_bias": [[TOKEN, 1000.0]], **more})
    assert answer.status == 200, answer.body
    assert answer.json["tokens"] == [TOKEN] * 60
    probs = answer.json["completion_probabilities"]
    return [{top["id"]: top["logprob"] for top in one["top_logprobs"]} for one in probs]


def agree(one: Steps, other: Steps) -> bool:
    """Return whether the steps can be of the same weights."""
    for tops, expected in zip(one, other, strict=True):
        shared = tops.keys() & expected.keys()
        if len(shared) < 5 or any(abs(tops[token] - expected[token]) > NEAR for token in shared):
            return False
    return True


def test_the_list_says_what_is_loaded(server: Client, files: Files) -> None:
    listed = server.get("/lora-adapters").json
    assert [(one["id"], one["path"], one["scale"]) for one in listed] == [
        (i, path, 0.0) for i, path in enumerate(files.lora)
    ]
    assert [one.get("name") for one in listed] == [None, None, "extra"]


@pytest.mark.parametrize("adapters", [[(0, 1.0)], [(1, 0.5)], [(0, 0.7), (1, -0.4)]])
def test_logits_are_those_of_merged_weights(
    server: Client, files: Files, adapters: list[tuple[int, float]]
) -> None:
    merged = files.merged(*((SEEDS[number], scale) for number, scale in adapters))
    with Live(*FLAGS, model=merged) as live:
        wanted = probabilities(live.client)
    top = probabilities(server, lora=scales(*adapters))
    shared = wanted.keys() & top.keys()
    assert len(shared) > 30
    assert np.allclose([top[one] for one in shared], [wanted[one] for one in shared], atol=1e-2)
    plain = probabilities(server)
    assert any(abs(plain.get(one, -99) - wanted[one]) > 0.1 for one in wanted)


def test_scales_of_all_change_and_a_request_has_its_own(server: Client) -> None:
    plain, first = text(server), text(server, lora=scales((0, 1.0)))
    assert plain != first
    assert server.post("/lora-adapters", scales((0, 1.0))).json == {"success": True}
    try:
        assert [one["scale"] for one in server.get("/lora-adapters").json] == [1.0, 0.0, 0.0]
        assert text(server) == first
        assert text(server, lora=scales((0, 0.0))) == plain
        assert text(server, lora=[]) == plain  # those that are left out have 0
        assert text(server, lora=None) == first
        assert text(server, lora=scales((1, 1.0))) not in (plain, first)
    finally:
        server.post("/lora-adapters", [])
    assert text(server) == plain


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([{"id": 9, "scale": 1}], "no adapter 9"),
        ([{"scale": 1}], "lora[0]"),
        ([{"id": 0}], '"lora[0]" must be an object with "id" and "scale"'),
        ([{"id": 0, "scale": "x"}], "scale"),
        ({"id": 0}, "array"),
        ([{"id": 0, "scale": 1e30}], "scale"),
    ],
)
def test_what_cannot_be_is_refused(server: Client, body: Any, message: str) -> None:
    for path, sent in (("/lora-adapters", body), ("/completion", {"prompt": "a", "lora": body})):
        answer = server.post(path, sent)
        assert answer.status == 400
        assert message in answer.json["error"]["message"]


def said(client: Client, model: str) -> Any:
    message = {"role": "user", "content": "Tell me"}
    return client.post(CHAT, {"model": model, "messages": [message], **ALONE, "max_tokens": 16})


def test_an_adapter_is_a_model(server: Client) -> None:
    listed = server.get("/v1/models").json["data"]
    assert [(one["id"], one.get("parent")) for one in listed] == [("base", None), ("base:extra", "base")]
    assert server.get("/v1/models/base:extra").json["id"] == "base:extra"
    plain, extra, bare = (said(server, name) for name in ("base", "base:extra", "extra"))
    contents = [one.json["choices"][0]["message"]["content"] for one in (plain, extra, bare)]
    assert contents[0] != contents[1] == contents[2]
    assert extra.json["model"] == "base:extra"
    asked = server.post("/completion", {"prompt": PROMPT, **ALONE, "model": "base:extra"}).json["content"]
    assert asked == text(server, lora=scales((2, 1.0)))
    missing = said(server, "base:none")
    assert missing.status == 404
    assert "none" in missing.json["error"]["message"]
    assert said(server, "whatever").status == 200


def test_each_of_eight_streams_has_the_logits_of_its_set_alone(server: Client) -> None:
    sets = [(), ((0, 1.0),), ((1, 1.0),), ((0, 0.5), (2, 0.5))]
    alone = [steps(server, lora=scales(*one) or scales((0, 0.0))) for one in sets]
    assert not any(agree(one, other) for i, one in enumerate(alone) for other in alone[:i])
    together: list[Steps] = [[] for _ in range(8)]

    def run(i: int) -> None:
        together[i] = steps(server, lora=scales(*sets[i % 4]) or scales((0, 0.0)))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(agree(one, expected) for one, expected in zip(together, alone * 2, strict=True))


def test_prefixes_are_kept_apart(server: Client) -> None:
    def n_cached(*adapters: tuple[int, float]) -> int:
        body = {"prompt": PROMPT + " apart", "n_predict": 1, "lora": scales(*adapters)}
        return int(server.post("/completion", body).json["timings"]["cache_n"])

    assert n_cached((0, 0.25)) == 0
    assert n_cached((0, 0.5)) == 0
    assert n_cached((0, 0.25)) > 0


def test_a_saved_state_names_its_set(server: Client) -> None:
    sent = {"prompt": PROMPT + " to be saved", "id_slot": 3, "n_predict": 4}
    server.post("/completion", {**sent, "lora": scales((0, 0.75))})
    state = server.post("/slots/3?action=save-state", {}).json["state"]
    raw = base64.b64decode(state)
    assert raw[-36:-32] == b"LORA"
    server.post("/slots/3?action=erase", {})
    assert server.post("/slots/3?action=restore-state", {"state": state}).status == 200
    again = server.post("/completion", {**sent, "lora": scales((0, 0.75))}).json
    assert again["timings"]["cache_n"] > 4
    server.post("/slots/3?action=restore-state", {"state": state})
    other = server.post("/completion", {**sent, "lora": scales((0, 0.5))}).json
    assert other["timings"]["cache_n"] == 0
    unknown = base64.b64encode(raw[:-1] + bytes([raw[-1] ^ 1])).decode()
    refused = server.post("/slots/3?action=restore-state", {"state": unknown})
    assert refused.status == 400
    assert "LoRA" in refused.json["error"]["message"]
    server.post("/completion", {**sent, "lora": scales((0, 0.0))})
    plain = base64.b64decode(server.post("/slots/3?action=save-state", {}).json["state"])
    assert raw[-36:-32] not in plain[-36:-32]


@pytest.fixture(scope="module")
def activated(files: Files) -> Iterator[Client]:
    """One that its tokens switch on, with scale 0 for all, beside a plain one."""
    with Live(*FLAGS, model=files.model) as live:
        tokens = live.client.post("/tokenize", {"content": " please act now"}).json["tokens"]
    path = write_lora(files.folder / "activated.gguf", files.model, 21, invocation=tokens)
    with Live(
        *FLAGS, "--lora", f"{files.lora[0]},{path}", "--lora-init-without-apply", model=files.model
    ) as live:
        yield live.client


def test_an_activated_adapter_acts_from_its_invocation_on(activated: Client) -> None:
    listed = activated.get("/lora-adapters").json[1]
    assert listed["alora_invocation_string"] == " please act now"
    on, off = {"lora": scales((1, 1.0))}, {"lora": scales((1, 0.0))}
    prompt = "The house was small and the garden was large; please act now"
    plain = text(activated, prompt=prompt, **off)
    asked = activated.post("/completion", {"prompt": prompt, **DRAWN, **on, "id_slot": 0}).json
    assert asked["content"] != plain
    assert asked["timings"]["cache_n"] > 5  # what comes before is the base's
    assert text(activated, prompt=PROMPT, **on) == text(activated, prompt=PROMPT, **off)
    again = activated.post("/completion", {"prompt": prompt, **DRAWN, **on, "cache_prompt": False}).json
    assert again["content"] == asked["content"]


def test_the_text_is_llama_servers(server: Client, files: Files) -> None:
    with llama_server(
        files.model, "-np", "1", "-c", "4096", "--lora", ",".join(files.lora), "--lora-init-without-apply"
    ) as peer:
        for adapters in ([(0, 1.0)], [(0, 0.7), (1, -0.4)]):
            sent = {"lora": scales(*adapters), "cache_prompt": False}
            assert text(server, **sent) == text(peer, **sent)


def test_embeddings_have_adapters_too(files: Files) -> None:
    flags = ("--embedding", "--pooling", "mean", "--lora-scaled", f"{files.lora[0]}:0.5")
    with Live(*FLAGS, *flags, "--lora", f"extra={files.lora[2]}", model=files.model) as live:

        def vector(**more: Any) -> list[float]:
            answer = live.client.post("/v1/embeddings", {"input": PROMPT, **more})
            assert answer.status == 200, answer.body
            embedding: list[float] = answer.json["data"][0]["embedding"]
            return embedding

        everybody, plain = vector(), vector(lora=scales((0, 0.0)))
        assert not np.allclose(everybody, plain, atol=1e-3)
        assert np.allclose(everybody, vector(lora=scales((0, 0.5))), atol=1e-6)
        assert np.allclose(vector(model="base:extra"), vector(lora=scales((0, 0.5), (1, 1.0))), atol=1e-6)
        assert live.client.post("/v1/embeddings", {"input": "a", "lora": scales((9, 1.0))}).status == 400
    with Live(*FLAGS, *flags[:3], model=files.merged((SEEDS[0], 0.5))) as live:
        merged = live.client.post("/v1/embeddings", {"input": PROMPT}).json["data"][0]["embedding"]
    assert np.allclose(everybody, merged, atol=2e-3)


def test_a_control_vector_changes_the_text_as_in_llama_server(files: Files, tmp_path: Path) -> None:
    vector = write_control_vector(tmp_path / "direction.gguf", 64, [1])
    flags = ("--control-vector-scaled", f"{vector}:0.5", "--control-vector-layer-range", "1", "1")
    with Live(*FLAGS, *flags, model=files.model) as live:
        changed = text(live.client)
    with Live(*FLAGS, model=files.model) as live:
        assert text(live.client) != changed
    with llama_server(files.model, "-np", "1", "-c", "4096", *flags) as peer:
        assert text(peer) == changed


def _broken(folder: Path, model: str) -> dict[str, tuple[str, str]]:
    """Files that do not fit, and what is said of them."""
    whole = {
        f"{n}.lora_{k}": v for n, (a, b) in pairs(model, 5).items() for k, v in zip("ab", (a, b), strict=True)
    }
    q = "blk.0.attn_q.weight"
    half = {k: v for k, v in whole.items() if k != f"{q}.lora_b"}
    e = "token_embd.weight"
    ranks = {**whole, f"{q}.lora_b": np.ascontiguousarray(whole[f"{q}.lora_b"][:, : RANK - 1])}
    deep = {**whole, f"{q}.lora_a": np.stack([whole[f"{q}.lora_a"]] * 2)}
    whole_numbers = {**whole, f"{q}.lora_a": whole[f"{q}.lora_a"].astype(np.int32)}
    made = {
        "type": (write_adapter(folder / "1.gguf", whole, kind="model"), "has general.type"),
        "arch": (write_adapter(folder / "2.gguf", whole, arch="qwen2"), "has general.architecture"),
        "tied": (write_lora(folder / "10.gguf", model, 5, names=(e,)), "as its output"),
        "alpha": (write_adapter(folder / "3.gguf", whole, alpha=8), "adapter.lora.alpha"),
        "half": (write_adapter(folder / "4.gguf", half), "only one of"),
        "ranks": (write_adapter(folder / "5.gguf", ranks), "do not fit"),
        "deep": (write_adapter(folder / "6.gguf", deep), "do not fit"),
        "integers": (write_adapter(folder / "7.gguf", whole_numbers), "not a float"),
        "other": (write_adapter(folder / "8.gguf", {"blk.9.x.weight.lora_a": whole[f"{q}.lora_a"],
                                                    "blk.9.x.weight.lora_b": whole[f"{q}.lora_b"]}), "does not have"),
    }  # fmt: skip
    cut = folder / "9.gguf"
    cut.write_bytes(Path(made["type"][0]).read_bytes()[:-2000])
    return {**made, "cut": (str(cut), "cut short"), "none": (str(folder / "no.gguf"), "No such file")}


@pytest.mark.parametrize(
    "what", ["type", "arch", "tied", "alpha", "half", "ranks", "deep", "integers", "other", "cut", "none"]
)
def test_a_file_that_does_not_fit_stops_the_start(files: Files, tmp_path: Path, what: str) -> None:
    path, message = _broken(tmp_path, files.model)[what]
    command = [sys.executable, "-m", "llamad", "-m", files.model, "--port", "0", "-t", "1", "--lora", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert path in done.stderr
