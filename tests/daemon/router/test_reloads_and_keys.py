"""A router with API keys whose preset changes: what is private stays so, and engines stay where they can."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from support.live_daemon import Live, engines
from support.many_models.calls import CHAT, chat, status
from support.many_models.files import Files

ONE = """
[*]
ctx-size = 512
parallel = 1
warmup = off
[calm]
model = {tiny}
temp = 0.0
pin = true
"""
TWO = (
    ONE
    + """
[wild]
model = {tiny}
temp = 1.5
[secret]
model = {tiny}.missing
[fresh]
model = {tiny}
ctx-size = 640
"""
)
LONG = {"role": "system", "content": "one two three four five six seven eight nine ten " * 4}
ALICE, BOB = ({"Authorization": f"Bearer {key}"} for key in ("alice", "bob"))


@pytest.fixture(scope="module")
def live(files: Files, start: Callable[..., Live]) -> Live:
    files.write(ONE)
    return start(files, "--api-key", "alice,bob")


def reload(live: Live, files: Files, preset: str) -> None:
    files.write(preset)
    assert live.client.get("/models?reload=1", headers=ALICE).status == 200


def n_cached(live: Live, model: str, key: dict[str, str]) -> int:
    body = chat(model, 2)
    body["messages"] = [LONG, *body["messages"]]
    answer = live.client.post(CHAT, body, headers=key)
    assert answer.status == 200
    return int(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_nobody_loads_a_model_or_sees_a_path_without_a_key(live: Live, files: Files) -> None:
    """No other test loads this model: what is known from an earlier load is told without the engine."""
    reload(live, files, TWO)
    assert live.client.get("/props?model=fresh").status == 503
    assert status(live.client, "fresh")["value"] == "unloaded"
    for path in ("/props?model=secret", "/health?model=secret", "/models"):
        answer = live.client.get(path)
        assert ".missing" not in answer.body.decode(), path
        assert str(files.folder) not in answer.body.decode(), path
    assert ".missing" in live.client.get("/props?model=secret", headers=BOB).body.decode()


def test_a_new_variant_is_served_by_the_engine_that_there_is(live: Live, files: Files) -> None:
    reload(live, files, ONE)
    n_cached(live, "calm", ALICE)
    pids = set(engines(live.process.pid))
    reload(live, files, TWO)
    assert n_cached(live, "wild", ALICE) > 0
    assert pids <= set(engines(live.process.pid))  # there may be a spare one, too


def test_variants_keep_the_prefixes_of_keys_apart(live: Live, files: Files) -> None:
    reload(live, files, TWO)
    n_cached(live, "calm", ALICE)
    assert n_cached(live, "wild", BOB) == 0
    reload(live, files, TWO.replace("temp = 0.0", "temp = 0.3"))
    n_cached(live, "calm", BOB)
    assert n_cached(live, "wild", ALICE) == 0


def test_other_defaults_keep_the_engine_and_what_clients_have_set(live: Live, files: Files) -> None:
    reload(live, files, ONE)
    n_cached(live, "calm", ALICE)
    pids = set(engines(live.process.pid))
    reload(live, files, ONE.replace("temp = 0.0", "temp = 0.7"))
    shown = live.client.get("/props?model=calm", headers=ALICE).json
    assert shown["default_generation_settings"]["params"]["temperature"] == pytest.approx(0.7)
    assert pids <= set(engines(live.process.pid))  # there may be a spare one, too
    assert n_cached(live, "calm", ALICE) > 0


def test_a_file_that_is_there_after_a_reload_is_served(live: Live, files: Files) -> None:
    reload(live, files, TWO)
    assert live.client.post(CHAT, chat("secret"), headers=ALICE).status == 500
    missing = files.model.with_name(files.model.name + ".missing")
    missing.symlink_to(files.model)
    try:
        reload(live, files, TWO)
        assert live.client.post(CHAT, chat("secret"), headers=ALICE).status == 200
    finally:
        missing.unlink()


def test_keys_do_not_come_while_a_model_learns_from_all_answers(
    files: Files, start: Callable[..., Live]
) -> None:
    files.write(f"{ONE}lookup-cache-dynamic = {files.folder}/learned.bin\n")
    env = files.folder / "env"
    env.write_text("LLAMA_ARG_N_MAX=4\n")
    live = start(files, "--env-file", str(env))
    assert live.client.post(CHAT, chat("calm")).status == 200
    env.write_text("LLAMA_API_KEY=alice\n")
    live.signal(signal.SIGHUP)
    live.wait_line("the old one is kept: --lookup-cache-dynamic learns from the answers of all API keys")
    assert live.client.post(CHAT, chat("calm")).status == 200
