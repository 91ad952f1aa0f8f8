"""A draft model over a real socket: it changes the number of steps and what is counted, not the answer."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.live_daemon import Live
from support.models.tiny_kv_models import SENSITIVE, write_model

from llamad.systemd import exit_codes

BODY = {"n_predict": 48, "temperature": 0, "ignore_eos": True, "return_tokens": True, "cache_prompt": False}
PROMPTS = [f"{'abcdefgh'[:n]} {n} xyz" for n in range(1, 9)]
SLOTS = ("-np", "4", "-c", "4096")
SHARED = ("-c", "1024")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """In float32, logits hardly depend on the rows of a step. The other model has the same vocabulary and other
    weights; the third one has a sliding window."""
    folder = tmp_path_factory.mktemp("drafts")
    return {
        "target": write_model(folder / "target.gguf", "llama", np.float32, weights=SENSITIVE),
        "other": write_model(folder / "other.gguf", "llama", np.float32),
        "window": write_model(folder / "window.gguf", "gemma3", np.float32),
    }


def answers(server, **options):
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(lambda one: server.client.complete(one, **(BODY | options)), PROMPTS))


def counted(results):
    """How many tokens were drafted and accepted."""
    timings = [one["timings"] for one in results]
    return [sum(one.get(name, 0) for one in timings) for name in ("draft_n", "draft_n_accepted")]


@pytest.fixture(scope="module")
def plain(models):
    with Live(*SLOTS, model=models["target"]) as server:
        return answers(server), answers(server, temperature=0.8, seed=3)


@pytest.fixture(scope="module")
def itself(models):
    flags = ("-md", models["target"], "--spec-fixed", "7", "--draft-max", "20", "--draft-p-min", "0.001")
    with Live(*flags, *SLOTS, "--slots", model=models["target"]) as server:
        yield server


def test_the_model_itself_drafts_what_it_will_say(itself, plain):
    drafted = answers(itself)
    assert [one["tokens"] for one in drafted] == [one["tokens"] for one in plain[0]]
    n_drafted, n_accepted = counted(drafted)
    assert n_drafted > 200
    assert n_accepted / n_drafted > 0.95
    assert drafted[0]["generation_settings"]["speculative.types"] == "draft-simple"


def test_sampled_texts_are_those_without_drafts(itself, plain):
    drafted = answers(itself, temperature=0.8, seed=3)
    assert [one["tokens"] for one in drafted] == [one["tokens"] for one in plain[1]]
    n_drafted, n_accepted = counted(drafted)
    assert 0 < n_accepted < n_drafted


@pytest.mark.parametrize("cache", [SLOTS, SHARED], ids=["streams", "shared"])
@pytest.mark.parametrize("draft", ["other", "window"])
def test_another_model_changes_no_text(models, plain, draft, cache):
    with Live("-md", models[draft], "--spec-fixed", "3", *cache, model=models["target"]) as server:
        drafted = answers(server)
        assert [one["tokens"] for one in drafted] == [one["tokens"] for one in plain[0]]
        assert counted(drafted)[0] > 100


def test_text_and_model_draft_together(models, plain):
    flags = ("-md", models["target"], "--spec", "auto", "--spec-fixed", "7")
    with Live(*flags, *SLOTS, model=models["target"]) as server:
        drafted = answers(server)
        assert [one["tokens"] for one in drafted] == [one["tokens"] for one in plain[0]]
        assert counted(drafted)[1] > 200
        assert drafted[0]["generation_settings"]["speculative.types"] == "auto,draft-simple"


def test_a_request_limits_its_drafts(itself, plain):
    free = counted(answers(itself))[0]
    for limit in ({"speculative.n_max": 2}, {"speculative.p_min": 0.9}):
        drafted = answers(itself, **limit)
        assert [one["tokens"] for one in drafted] == [one["tokens"] for one in plain[0]]
        assert 0 < counted(drafted)[0] < free
        assert drafted[0]["generation_settings"].items() >= limit.items()
    for limit in ({"speculative.n_max": 0}, {"speculative.p_min": 1}):
        assert counted(answers(itself, **limit)) == [0, 0]


def test_the_probability_is_not_named_as_ignored(itself):
    answer = itself.client.post("/completion", {"prompt": "x", "n_predict": 1, "speculative.p_min": 0.5})
    assert (answer.status, answer.headers.get("x-llamad-ignored")) == (200, None)


def test_the_limits_in_effect_are_shown(itself):
    shown = (
        itself.client.get("/slots").json[0],
        itself.client.get("/props").json["default_generation_settings"],
    )
    for one in shown:
        assert [one[f"speculative.{name}"] for name in ("types", "n_max", "n_min", "p_min")] == [
            "draft-simple",
            20,
            0,
            0.001,
        ]
    settings = itself.client.get("/props").json["settings"]
    assert (settings["spec_draft_n_max"], settings["spec_fixed"]) == (20, 7)
    assert itself.wait_line(r"model ready in .*, drafts: (.*)")[1] == "draft-simple"


def test_a_full_context_goes_on(models):
    body = BODY | {"n_predict": 400, "prompt": "abc"}
    texts = []
    for flags in ((), ("-md", models["target"], "--spec-fixed", "7")):
        with Live(*flags, "-np", "1", "-c", "256", model=models["target"]) as server:
            texts.append(server.client.post("/completion", body).json)
    assert [one["truncated"] for one in texts] == [True, True]
    assert texts[0]["tokens"] == texts[1]["tokens"]
    assert texts[1]["timings"]["draft_n_accepted"] > 200


def test_a_restored_slot_drafts_again(models, tmp_path):
    flags = (
        "-md",
        models["target"],
        "--spec-fixed",
        "7",
        "-np",
        "2",
        "-c",
        "1024",
        "--slot-save-path",
        str(tmp_path),
    )
    with Live(*flags, model=models["target"]) as server:
        client = server.client
        first = client.complete("abcdefgh" * 8, **BODY | {"cache_prompt": True}, id_slot=0)
        assert client.post("/slots/0?action=save", {"filename": "state"}).status == 200
        client.complete("something else", **BODY, id_slot=0)
        assert client.post("/slots/1?action=restore", {"filename": "state"}).status == 200
        again = client.complete("abcdefgh" * 8, **BODY | {"cache_prompt": True}, id_slot=1)
        assert again["timings"]["cache_n"] > 50
        assert again["tokens"] == first["tokens"]
        assert again["timings"]["draft_n_accepted"] > 20


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--llama-api-only",), "--llama-api-only is given"),
        (("-gan", "2", "-gaw", "64"), "this model's memory cannot remove tokens that were drafted wrongly"),
    ],
)
def test_a_server_that_cannot_draft_says_so_and_serves(models, flags, reason):
    with Live("-md", models["target"], *flags, "-np", "1", "--slots", model=models["target"]) as server:
        assert sum(f"nothing is drafted: {reason}" in line for line in server.lines) == 1
        assert "draft_n" not in server.client.complete("abc", **BODY)["timings"]
        assert server.client.get("/slots").json[0]["speculative"] is False


def test_a_recurrent_model_is_served_without_its_draft_model(models, tmp_path):
    model = write_model(tmp_path / "model.gguf", "mamba", np.float32)
    with Live("-md", models["target"], "-np", "1", model=model) as server:
        assert any("nothing is drafted: this model's memory" in line for line in server.lines)
        assert server.client.complete("abc", **BODY)["tokens_predicted"] == 48


def test_another_vocabulary_stops_the_start(models):
    """The default model has one of 49,152 tokens."""
    with Live("-md", models["target"], "--exit-on-load-failure", ready=False) as server:
        assert server.wait_exit() == exit_codes.LOAD_FAILED
    assert any(
        "its vocabulary does not fit: it has another type of tokenizer" in line for line in server.lines
    )


@pytest.mark.parametrize("command", [[], ["check"]], ids=["serve", "check"])
def test_a_missing_file_stops_the_start(models, tmp_path, command):
    line = [*command, "-m", models["target"], "-md", str(tmp_path / "no.gguf"), "-t", "1"]
    done = subprocess.run([sys.executable, "-m", "llamad", *line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert (
        done.stderr == f"llamad: {tmp_path / 'no.gguf'}: No such file or directory; -md names a GGUF file\n"
    )
