"""POST /infill: the prompt that the answer echoes shows every token, since each letter is one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.live_daemon import Live
from support.models import bigram_model
from support.peer import llama_server

from llamad.api.request.fim_prompt import refusal, shares
from llamad.protocol.model_info import ModelInfo

PRE, SUF, MID, REP, SEP = (
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
BOS = "<s>"
SNIPPET = "\n\n--- snippet ---\n\n"
TAIL = f"{SEP}filename\n{BOS}"
# After FIM_MID the model would go on with any letter.
FROM_L = 'root ::= "l" [a-z]*'
EXTRA = [{"filename": "one.c", "text": "int one;\n"}, {"text": "int two;\n"}]
N_CTX, N_BATCH = 1024, 64
FLAGS = ("-c", str(N_CTX), "-b", str(N_BATCH), "-n", "16", "--temp", "0")


@pytest.fixture(scope="module")
def repo_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("infill") / "repo.gguf"
    return bigram_model.write_bigram(path, (PRE, SUF, MID, REP, SEP))


@pytest.fixture(scope="module")
def repo(repo_model):
    """A model with every token, and a batch that is a small part of the context."""
    with Live(*FLAGS, model=repo_model) as server:
        yield server.client


@pytest.fixture(scope="module")
def small(repo_model):
    """The suffix first, no BOS, and a context that is a small part of the batch."""
    no_bos = ("--override-kv", "tokenizer.ggml.add_bos_token=bool:false")
    with Live("--spm-infill", "-c", "256", *no_bos, model=repo_model) as server:
        yield server.client


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model that knows neither repositories nor files."""
    path = bigram_model.write_bigram(tmp_path_factory.mktemp("infill") / "plain.gguf", (PRE, SUF, MID))
    with Live("-c", "4096", "--temp", "0", model=path) as server:
        yield server.client


def fill(client, prefix, suffix, **options):
    body = {"input_prefix": prefix, "input_suffix": suffix, "n_predict": 2, **options}
    answer = client.post("/infill", body)
    assert answer.status == 200, answer.body
    return answer.json


def prompt(client, prefix, suffix, **options):
    return fill(client, prefix, suffix, **options)["prompt"]


# The patterns.


def test_repository_pattern(repo):
    head = f"{REP}myproject\n"
    files = f"{SEP}one.c\nint one;\n{SEP}tmp\nint two;\n"
    assert prompt(repo, "ab", "cd") == f"{head}{TAIL}{PRE}ab{SUF}cd{MID}"
    assert prompt(repo, "ab", "cd", input_extra=EXTRA) == f"{head}{files}{TAIL}{PRE}ab{SUF}cd{MID}"


def test_the_prompt_ends_the_prefix(repo):
    """llama.vim sends the lines above the cursor as the prefix, and what stands before it in its line as the prompt."""
    answer = fill(repo, "ab", "cd", prompt="l")
    assert answer["prompt"].endswith(f"{PRE}abl{SUF}cd{MID}")
    assert fill(repo, "ab", "cd", prompt={"prompt_string": "l"})["prompt"] == answer["prompt"]
    assert fill(repo, "abl", "cd")["prompt"] == answer["prompt"]


def test_fallback_pattern(plain):
    files = f"{SNIPPET}int one;\n{SNIPPET}int two;\n"
    assert prompt(plain, "ab", "cd") == f"{BOS}{PRE}ab{SUF}cd{MID}"
    told = prompt(plain, "ab", "cd", input_extra=EXTRA, prompt="ef")
    assert told == f"{files}{BOS}{PRE}abef{SUF}cd{MID}"


def test_suffix_first(small):
    told = prompt(small, "ab", "cd", prompt="ef")
    assert told == f"{SUF}cd{PRE}abef{MID}"


def test_only_the_prompt_parses_special_tokens(plain):
    answer = fill(plain, MID, MID, input_extra=[{"text": MID}], prompt=MID)
    told = plain.post("/tokenize", {"content": MID, "parse_special": False}).json["tokens"]
    n_snippet = len(plain.post("/tokenize", {"content": SNIPPET}).json["tokens"])
    assert len(told) > 1
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == 3 * len(told) + n_snippet + 4 + 1


def test_arrays_of_tokens_and_texts(plain):
    assert prompt(plain, ["a", bigram_model.token("b"), "c"], []) == f"{BOS}{PRE}abc{SUF}{MID}"


def test_system_prompt_has_the_only_bos(plain):
    told = prompt(plain, "ab", "cd", input_extra=EXTRA[1:], system_prompt="xyz")
    assert told == f"{BOS}xyz{SNIPPET}int two;\n{PRE}ab{SUF}cd{MID}"
    assert prompt(plain, "ab", "", system_prompt="") == f"{BOS}{PRE}ab{SUF}{MID}"


# What is cut.


def test_prefix_and_suffix_fit_a_batch(repo):
    prefix, suffix = "abcdefgh" * 20, "hgfedcba" * 20
    told = prompt(repo, prefix, suffix, prompt="xyz")
    quarter = N_BATCH // 4
    kept = suffix[: quarter - 2 - 3]
    assert told == f"{REP}myproject\n{TAIL}{PRE}{prefix[-3 * quarter :]}xyz{SUF}{kept}{MID}"
    assert f"{SUF}{MID}" in prompt(repo, prefix, suffix, prompt="y" * quarter)


def test_extra_texts_fill_the_rest_of_the_context(repo):
    text = "abcdefgh" * 200
    told = prompt(repo, "ab", "cd", input_extra=[{"filename": "far", "text": text}])
    n_kept = N_CTX - N_BATCH - 2 * 16 - len("?filename\n")  # the server's -n, not the request's
    assert told == f"{text[-n_kept:]}{TAIL}{PRE}ab{SUF}cd{MID}"


def test_all_fits_a_context_smaller_than_the_batch(small):
    prefix, suffix, text = "abcdefgh" * 100, "hgfedcba" * 100, "mnop" * 100
    # Beside 2 tokens of answer and the 3 of FIM there is room for 251: quarters of 62. A batch that is larger than the
    # context leaves nothing for the extra.
    told = prompt(small, prefix, suffix, input_extra=[{"text": text}])
    assert told == f"{SUF}{suffix[:60]}{PRE}{prefix[-186:]}{MID}"
    told = prompt(small, "ab", "cd", input_extra=[{"text": text}])
    assert told == f"{SUF}cd{PRE}ab{MID}"
    # What fits the context is not cut, even if the answer must shift it.
    told = prompt(small, prefix[:200], suffix[:52], n_predict=1)
    assert told == f"{SUF}{suffix[:52]}{PRE}{prefix[:200]}{MID}"
    # However long the answer may be, it has a quarter of the context; one without a limit as well.
    for n_predict in (-1, 5000):
        body = {"input_prefix": prefix, "input_suffix": suffix, "n_predict": n_predict, "stop": ["a"]}
        told = small.post("/infill", {**body, "seed": 1, "temperature": 0}).json["prompt"]
        assert told.endswith(f"{SUF}{suffix[: 47 - 2]}{PRE}{prefix[-3 * 47 :]}{MID}")


def test_a_prompt_too_long_is_refused_with_the_numbers(small):
    answer = small.post("/infill", {"input_prefix": "a", "input_suffix": "b", "prompt": "x" * 300})
    assert (answer.status, answer.error["type"]) == (400, "exceed_context_size_error")
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (303, 256)


def test_long_texts_go_to_a_worker(plain):
    told = prompt(plain, "abcdefgh" * 5000, "hgfedcba" * 5000)
    assert told == f"{BOS}{PRE}{'abcdefgh' * 192}{SUF}{('hgfedcba' * 64)[:510]}{MID}"


@given(
    st.tuples(*[st.integers(0, 5000)] * 4),
    st.integers(-300, 5000),
    st.integers(1, 5000),
    st.integers(-2, 500),
)
def test_shares_fit_the_room(lengths, room, n_batch, n_predict):
    kept = shares(
        *lengths, room=room, n_answer=5, n_ctx=max(8, room + 100), n_batch=n_batch, n_predict=n_predict
    )
    assert all(0 <= n <= length for n, length in zip(kept, lengths, strict=False))
    assert sum(kept) + lengths[3] < max(room, lengths[3] + 1)


# The answer.


def test_streams_as_completion_does(repo):
    body = {"input_prefix": "ab", "input_suffix": "cd", "prompt": "e", "n_predict": 4, "grammar": FROM_L}
    events = list(repo.events("/infill", {**body, "stream": True}))
    assert "".join(event["content"] for event in events) == "lmno"
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["prompt"].endswith(f"{PRE}abe{SUF}cd{MID}")
    assert repo.post("/infill", body).json["content"] == "lmno"


def test_options_of_completion_count(repo):
    answer = fill(repo, "ab", "cd", grammar=FROM_L, n_predict=8, stop=["o"], return_tokens=True)
    assert (answer["content"], answer["stop_type"], answer["stopping_word"]) == ("lmn", "word", "o")
    assert answer["tokens"] == bigram_model.tokens("lmno")  # what completed the stop string was written too
    assert answer["generation_settings"]["n_predict"] == 8
    assert fill(repo, "ab", "cd", grammar='root ::= "gg"', n_predict=-1)["content"] == "gg"
    assert [one["content"] for one in fill(repo, "ab", "cd", grammar=FROM_L, n=2)] == ["lm", "lm"]
    body = {"input_prefix": "ab", "input_suffix": "cd", "grammar": FROM_L}
    assert len(repo.post("/infill", body).json["content"]) == 16  # the server's -n


def test_the_prefix_is_found_in_the_cache(plain):
    fill(plain, "abcdefgh" * 30, "cd", prompt="a")
    again = fill(plain, "abcdefgh" * 30, "cd", prompt="ab")
    assert again["timings"]["cache_n"] >= 240 > again["timings"]["prompt_n"] > 0


# Beside llama-server, where it was built.


@pytest.mark.parametrize("spm", [(), ("--spm-infill",)])
def test_the_tokens_are_llama_servers(repo_model, spm):
    prefix, suffix, text = "abcdefgh" * 20, "hgfedcba" * 20, "mnop" * 400
    bodies = [
        {"input_prefix": "ab", "input_suffix": "cd"},
        {"input_prefix": "ab", "input_suffix": "cd", "prompt": f"l{MID}"},
        {"input_prefix": prefix, "input_suffix": suffix, "prompt": "xyz", "input_extra": EXTRA},
        {"input_prefix": prefix, "input_suffix": suffix, "prompt": "y" * 20},
        {"input_prefix": "", "input_suffix": "", "prompt": "y", "input_extra": [{"text": text}, *EXTRA]},
    ]
    with (
        llama_server(repo_model, "-np", "1", *FLAGS, *spm) as peer,
        Live(*FLAGS, *spm, model=repo_model) as own,
    ):
        for body in bodies:
            theirs, ours = (one.post("/infill", {**body, "n_predict": 1}).json for one in (peer, own.client))
            assert ours["prompt"] == theirs["prompt"], body
            assert ours["tokens_evaluated"] == theirs["tokens_evaluated"]


# Errors.


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"input_prefix": None}, '"input_prefix"'),
        ({"input_suffix": None}, '"input_suffix"'),
        ({"input_prefix": 5}, '"input_prefix"'),
        ({"input_suffix": {}}, '"input_suffix"'),
        ({"input_prefix": ["a", 1.5]}, '"input_prefix"'),
        ({"input_prefix": ["a", True]}, '"input_prefix"'),
        ({"input_suffix": [bigram_model.N_VOCAB + 5]}, '"input_suffix"'),
        ({"input_suffix": [-1]}, '"input_suffix"'),
        ({"prompt": ["a"]}, '"prompt"'),
        ({"input_extra": "a"}, '"input_extra"'),
        ({"input_extra": ["a"]}, '"input_extra"'),
        ({"input_extra": [{"filename": "a"}]}, '"text"'),
        ({"input_extra": [{"text": 5}]}, '"text"'),
        ({"input_extra": [{"text": "a", "filename": 5}]}, '"filename"'),
        ({"temperature": "hot"}, '"temperature"'),
        ({"stream": 1}, '"stream"'),
    ],
)
def test_wrong_input_is_named(repo, fields, word):
    answer = repo.post("/infill", {"input_prefix": "a", "input_suffix": "b", **fields})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert word in answer.error["message"]


def test_a_model_without_the_tokens_cannot(client):
    answer = client.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
    for name in ("prefix (FIM_PRE)", "suffix (FIM_SUF)", "middle (FIM_MID)"):
        assert name in answer.error["message"]


def test_the_missing_token_is_named():
    info = ModelInfo("a.gguf", "", 1, 9, 9, 9, 9, 9, "", 0, 1, -1, True, fim_pre=5, fim_mid=6)
    error = refusal(info)
    assert error is not None
    assert "FIM_SUF" in error.message
    assert "FIM_PRE" not in error.message
    assert "FIM_MID" not in error.message
    assert refusal(msgspec.structs.replace(info, fim_suf=7)) is None


def test_suffix_of_openais_completions_is_filled_in(repo):
    body = {"prompt": "ab", "suffix": "cd", "max_tokens": 3}
    answer = repo.post("/v1/completions", body)
    assert answer.status == 200
    text = answer.json["choices"][0]["text"]
    filled = fill(repo, "ab", "cd", n_predict=3)
    assert text == filled["content"]
    refused = repo.post("/v1/completions", {**body, "prompt": [5, 6]})
    assert refused.status == 400
    assert "suffix" in refused.error["message"]
