"""`system_prompt`, -spf and --no-system-prompt: one prefix before every prompt, in every slot, for every client where
there are no keys."""

import json
import subprocess
import sys
import threading

import pytest
from support.live_daemon import Live
from support.models.bigram_model import BOS, tokens

TEXT = "abcdefgh"
NAMES = {"prompt": TEXT, "anti_prompt": "User:", "assistant_name": "Assistant:"}


@pytest.fixture(scope="module")
def server(bigram_path):
    with Live("-np", "2", "-c", "512", "--slots", model=bigram_path) as live:
        yield live


@pytest.fixture
def client(server):
    """Without a system prompt at first, and without what others left in the slots."""
    server.client.post("/completion", {"system_prompt": ""})
    for slot in range(2):
        server.client.complete([3], n_predict=0, id_slot=slot, cache_prompt=False)
    yield server.client
    server.client.post("/completion", {"system_prompt": ""})
    server.wait_idle()


def prompt_of(client, prompt="ij", **options):
    """The processed prompt and its number of tokens."""
    result = client.complete(prompt, n_predict=0, **options)
    return result["prompt"].removeprefix("<s>"), result["tokens_evaluated"]


def names(client, **options):
    props = client.get("/props", **options).json
    return props["system_prompt"], props["user_name"], props["assistant_name"]


def test_a_request_sets_it_for_itself_and_for_everyone_after(client):
    assert prompt_of(client) == ("ij", 3)
    assert names(client) == ("", "", "")
    assert prompt_of(client, system_prompt=NAMES) == (TEXT + "ij", 11)
    assert prompt_of(client) == (TEXT + "ij", 11)
    assert names(client) == (TEXT, "User:", "Assistant:")


def test_a_plain_string_is_a_system_prompt_without_names(client):
    client.complete("ij", n_predict=0, system_prompt=NAMES)
    assert prompt_of(client, system_prompt="kkk") == ("kkkij", 6)
    assert names(client) == ("kkk", "", "")


def test_only_the_request_that_sent_it_has_it_in_its_settings(client):
    sent = client.complete("ij", n_predict=0, system_prompt=NAMES)["generation_settings"]["system_prompt"]
    assert sent == NAMES
    assert client.complete("ij", n_predict=0)["generation_settings"]["system_prompt"] is None


def test_null_leaves_it_and_an_empty_one_takes_it_away(client):
    client.complete("ij", n_predict=0, system_prompt=NAMES)
    assert prompt_of(client, system_prompt=None)[0] == TEXT + "ij"
    assert prompt_of(client, system_prompt="") == ("ij", 3)
    assert names(client) == ("", "", "")


@pytest.mark.parametrize("prompt", [{}, {"prompt": ""}, {"prompt": None}], ids=str)
def test_without_a_prompt_it_is_only_set_and_read(client, prompt):
    answer = client.post("/completion", {**prompt, "system_prompt": NAMES, "n_predict": 50})
    assert answer.status == 200
    result = answer.json
    assert (result["content"], result["tokens_predicted"], result["stop_type"]) == ("", 0, "limit")
    assert result["tokens_evaluated"] == 9
    # Its tokens are in the cache for the first one who asks.
    assert client.complete("ij", n_predict=1)["timings"]["cache_n"] == 9
    cleared = client.post("/completion", {**prompt, "system_prompt": "", "stream": False}).json
    assert (cleared["content"], cleared["tokens_evaluated"], cleared["stop"]) == ("", 0, True)
    assert names(client) == ("", "", "")


def test_without_a_prompt_a_stream_has_its_last_event(client):
    (event,) = client.events("/completion", {"system_prompt": NAMES, "stream": True})
    assert (event["stop"], event["content"]) == (True, "")
    (event,) = client.events("/completion", {"system_prompt": "", "stream": True})
    assert event["stop"] is True


def test_an_empty_prompt_of_its_own_writes_behind_it(client):
    client.post("/completion", {"system_prompt": "abi"})
    assert client.complete("", n_predict=3, temperature=0)["content"] == "iii"


@pytest.mark.parametrize(
    "prompt",
    ["ij", tokens("ij"), [BOS, *tokens("ij")], [tokens("i")[0], "j"], ["i", tokens("j")[0]]],
    ids=str,
)
def test_bos_stands_once_and_first(client, prompt):
    """Whatever the shape of the prompt: the tokens are the same, so all but the last are in the cache."""
    first = client.complete("ij", n_predict=0, system_prompt=TEXT, id_slot=0)
    again = client.complete(prompt, n_predict=0, id_slot=0)
    assert first["tokens_evaluated"] == again["tokens_evaluated"] == 1 + 8 + 2
    assert again["timings"]["cache_n"] == 10


def test_it_stands_before_each_of_several_prompts(client):
    results = client.complete(["i", "jj"], n_predict=0, system_prompt=TEXT)
    assert [one["tokens_evaluated"] for one in results] == [10, 11]


def test_every_slot_has_it_and_keeps_it(client):
    client.post("/completion", {"system_prompt": TEXT})
    for slot in (0, 1):
        client.complete("i", n_predict=0, id_slot=slot)
        result = client.complete("kjk", n_predict=0, id_slot=slot)
        assert result["timings"]["cache_n"] == 9


@pytest.mark.parametrize("n_keep", [0, 5, -1])
def test_a_context_shift_keeps_it(client, n_keep):
    """n_keep counts past it."""
    client.post("/completion", {"system_prompt": TEXT})
    result = client.complete("k" * 100, n_predict=200, temperature=0, n_keep=n_keep, id_slot=0)
    assert result["truncated"] is True
    # With -1 as many tokens as the prompt has are kept after BOS, so that one is the answer's, as in llama-server.
    n_kept = 9 + (101 if n_keep < 0 else n_keep)
    again = client.complete("k" * 100, n_predict=0, id_slot=0)
    assert again["timings"]["cache_n"] >= min(n_kept, 108)
    held = 9 + 100 + 199
    while held >= 256:
        held -= (255 - n_kept) // 2
    assert result["tokens_cached"] == held


def test_penalties_see_it(client):
    assert client.complete("a", n_predict=1, temperature=0, presence_penalty=5.0)["content"] == "b"
    client.post("/completion", {"system_prompt": "bc"})
    assert client.complete("a", n_predict=1, temperature=0, presence_penalty=5.0)["content"] == "d"


def test_the_slots_show_it(server, client):
    client.post("/completion", {"system_prompt": TEXT})
    stream = client.open_stream({"prompt": "ij", "n_predict": 100000, "ignore_eos": True})
    stream.recv(4096)
    shown = [slot["prompt"] for slot in client.get("/slots").json if slot["is_processing"]]
    stream.close()
    server.wait_idle()
    assert [text.removeprefix("<s>") for text in shown] == [TEXT + "ij"]


def test_what_does_not_fit_is_refused_and_changes_nothing(client):
    client.post("/completion", {"system_prompt": NAMES})
    for body in (
        {"prompt": "k" * 250},
        {"prompt": "k" * 200, "system_prompt": "i" * 100},
        {"prompt": "k", "system_prompt": "i" * 300},
        {"system_prompt": "i" * 300},
        {"prompt": "k", "system_prompt": "i" * 100_000},  # long enough for a worker
    ):
        answer = client.post("/completion", body)
        assert answer.status == 400
        assert answer.error["type"] == "exceed_context_size_error"
        assert answer.error["n_ctx"] == 256 <= answer.error["n_prompt_tokens"]
        assert "system prompt" in answer.error["message"]
    assert names(client) == (TEXT, "User:", "Assistant:")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5, ["system_prompt", "string"]),
        (True, ["system_prompt"]),
        (["a"], ["system_prompt"]),
        ({}, ["system_prompt", "prompt"]),
        ({"anti_prompt": "User:"}, ["system_prompt", "prompt"]),
        ({"prompt": 5}, ["system_prompt", "prompt", "string"]),
        ({"prompt": "a", "anti_prompt": ["b"]}, ["system_prompt", "anti_prompt", "string"]),
        ({"prompt": "a", "assistant_name": 1}, ["system_prompt", "assistant_name", "string"]),
    ],
    ids=str,
)
def test_a_wrong_one_is_named(client, value, words):
    answer = client.post("/completion", {"prompt": "i", "system_prompt": value})
    assert answer.status == 400
    assert all(word in answer.error["message"] for word in words), answer.error
    assert names(client) == ("", "", "")


def test_a_wrong_request_changes_nothing(client):
    assert client.post("/completion", {"prompt": 5, "system_prompt": "x"}).status == 400
    assert client.post("/completion", {"prompt": "i", "top_p": 5, "system_prompt": "x"}).status == 400
    assert names(client) == ("", "", "")


def test_many_who_change_it_at_once_never_mix(client):
    """Each answer has its own system prompt whole, and the last one stays whole with its own names."""
    texts = [letter * 20 for letter in "abcdef"]
    wrong = []

    def change(text):
        for _ in range(10):
            value = {"prompt": text, "anti_prompt": text[:3], "assistant_name": text[:5]}
            if prompt_of(client, system_prompt=value)[0] != text + "ij":
                wrong.append(text)

    threads = [threading.Thread(target=change, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    text = names(client)[0]
    assert text in texts
    assert names(client) == (text, text[:3], text[:5])


# The file.


def file_of(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", json.dumps({"system_prompt": NAMES}), tuple(NAMES.values())),
        ("a.json", json.dumps(NAMES), tuple(NAMES.values())),
        ("a.txt", "\ufeff" + json.dumps(NAMES), tuple(NAMES.values())),
        ("a.txt", "ab\n", ("ab\n", "", "")),
        ("a.txt", "{ab", ("{ab", "", "")),
    ],
)
def test_a_file_sets_it_at_the_start(started, tmp_path, name, content, expected):
    server = started("-spf", file_of(tmp_path, name, content))
    assert names(server.client) == expected
    assert prompt_of(server.client)[0] == expected[0] + "ij"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "{}", '"prompt"'),
        ("a.json", '{"system_prompt": {"prompt": 5}}', "must be a string"),
        (None, "", "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(bigram_path, tmp_path, name, content, reason):
    path = str(tmp_path / "missing") if name is None else file_of(tmp_path, name, content)
    command = [sys.executable, "-m", "llamad", "-m", bigram_path, "--port", "0", "-spf", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "--system-prompt-file" in done.stderr
    assert reason in done.stderr


def test_a_file_that_does_not_fit_is_said(bigram_path, tmp_path):
    path = file_of(tmp_path, "long.txt", "a" * 300)
    with Live("-c", "256", "-spf", path, model=bigram_path, ready=False) as server:
        server.wait_line("--system-prompt-file: The prompt of 301 tokens")
        assert server.client.get("/health").status == 500


def test_no_system_prompt_refuses_the_field_but_not_the_file(started, tmp_path):
    server = started("--no-system-prompt", "-spf", file_of(tmp_path, "a.json", json.dumps(NAMES)))
    error = server.refused(
        {"prompt": "i", "system_prompt": "x"}, '"system_prompt"', "--no-system-prompt", status=501
    )
    assert error["type"] == "not_supported_error"
    server.refused({"system_prompt": ""}, "--no-system-prompt", status=501)
    assert prompt_of(server.client, system_prompt=None)[0] == TEXT + "ij"
    assert names(server.client) == tuple(NAMES.values())


def test_where_it_is_shared_any_key_may_set_it_and_all_are_told(bigram_path):
    with Live("-c", "256", "--api-key", "one,two", "--system-prompt-shared", model=bigram_path) as server:
        client = server.client
        assert client.post("/completion", {"system_prompt": TEXT}).status == 401
        assert names(client) == ("", "", "")
        headers = {"Authorization": "Bearer two"}
        assert client.post("/completion", {"system_prompt": NAMES}, headers=headers).status == 200
        assert names(client) == ("", "User:", "Assistant:")  # the text itself is for those with a key
        for key in ("one", "two"):
            headers = {"Authorization": f"Bearer {key}"}
            assert names(client, headers=headers) == (TEXT, "User:", "Assistant:")


def test_a_real_model_answers_as_if_it_stood_in_the_prompt():
    system, prompt = "You are a pirate. Every answer ends with Arrr!\n", "Question: How are you?\nAnswer:"
    options = {"n_predict": 16, "temperature": 0, "cache_prompt": False}
    with Live("-np", "1", "-c", "512") as server:
        ids = [server.client.post("/tokenize", {"content": text}).json["tokens"] for text in (system, prompt)]
        alone = server.client.complete(prompt, **options)
        joined = server.client.complete(ids[0] + ids[1], **options)
        behind = server.client.complete(prompt, **options, system_prompt=system)
        assert behind["content"] == joined["content"] != alone["content"]
        assert behind["prompt"] == system + prompt
        again = server.client.complete(prompt, **{**options, "cache_prompt": True})
        assert again["content"] == behind["content"]


def test_echo_does_not_tell_it(client):
    """Neither the system prompt nor the token that begins a text is part of what /v1/completions echoes."""

    def told(prompt):
        body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 0}
        choice = client.post("/v1/completions", body).json["choices"][0]
        assert choice["text"] == "".join(choice["logprobs"]["tokens"])
        assert choice["logprobs"]["token_logprobs"][:1] in ([None], [])
        return choice["logprobs"]["tokens"]

    assert told("ijk") == ["i", "j", "k"]
    assert told("") == []
    assert told([BOS, *tokens("ij")]) == ["<s>", "i", "j"]
    client.complete("", system_prompt=TEXT)
    assert told("ijk") == ["i", "j", "k"]
    assert told(tokens("ij")) == ["i", "j"]
