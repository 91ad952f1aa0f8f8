"""POST /completion of the real program, over a real socket."""

import pytest

PROMPT = "Building a website can be done in 10 simple steps:"

RESULT_FIELDS = {
    "content": str,
    "tokens": list,
    "id_slot": int,
    "stop": bool,
    "model": str,
    "tokens_predicted": int,
    "tokens_evaluated": int,
    "generation_settings": dict,
    "prompt": str,
    "truncated": bool,
    "stop_type": str,
    "stopped_eos": bool,
    "stopped_limit": bool,
    "stopped_word": bool,
    "stopping_word": str,
    "tokens_cached": int,
    "timings": dict,
}

SETTINGS = """
    n_ctx model n_predict seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma
    xtc_probability xtc_threshold tfs_z typical_p repeat_last_n repeat_penalty presence_penalty
    frequency_penalty penalize_nl dry_multiplier dry_base dry_allowed_length dry_penalty_last_n
    dry_sequence_breakers mirostat mirostat_tau mirostat_eta stop max_tokens n_keep n_discard ignore_eos
    stream logit_bias n_probs min_keep grammar samplers timings_per_token
"""


def greedy(client, prompt, **options):
    return client.complete(prompt, **{"temperature": 0, "n_predict": 8, "cache_prompt": False, **options})


@pytest.mark.real_model
def test_the_result_has_every_documented_field(client):
    result = client.complete(PROMPT, n_predict=16)
    for name, kind in RESULT_FIELDS.items():
        assert isinstance(result[name], kind), name
    assert set(SETTINGS.split()) <= set(result["generation_settings"])
    assert result["stop"] is True
    assert result["model"] == "smol"
    assert result["prompt"] == PROMPT
    assert result["tokens_predicted"] == 16
    assert (result["stop_type"], result["stopped_limit"], result["stopping_word"]) == ("limit", True, "")
    timings = result["timings"]
    assert timings["predicted_n"] == 16
    assert timings["prompt_n"] + timings["cache_n"] == result["tokens_evaluated"]
    assert timings["predicted_ms"] > 0
    # The first token comes from the last step of the prefill.
    assert timings["predicted_per_second"] == pytest.approx(15e3 / timings["predicted_ms"])
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 15)
    # All tokens in the slot at the end; the last one picked was not decoded any more.
    assert result["tokens_cached"] == result["tokens_evaluated"] + 15


def test_both_paths_answer(client):
    for path in ("/completion", "/completions"):
        assert client.post(path, {"prompt": "x", "n_predict": 1}).json["tokens_predicted"] == 1


def test_a_stream_concatenates_to_the_whole_answer(client):
    body = {"prompt": PROMPT, "n_predict": 40, "seed": 7, "cache_prompt": False}
    whole = client.post("/completion", {**body, "return_tokens": True}).json
    events = list(client.events("/completion", {**body, "stream": True}))
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [token for event in events[:-1] for token in event["tokens"]] == whole["tokens"]
    assert all(set(event) == {"content", "tokens", "stop"} for event in events[:-1])
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["timings"]["predicted_n"] == 40
    assert len(events) > 20


def test_the_same_seed_gives_the_same_text_and_another_seed_another(client):
    options = {"n_predict": 24, "cache_prompt": False, "temperature": 1.0}
    first, again, other = (client.complete(PROMPT, seed=seed, **options) for seed in (5, 5, 6))
    assert first["content"] == again["content"] != other["content"]
    assert first["generation_settings"]["seed"] == 5


def test_a_random_seed_is_reported_and_reproduces_the_text(client):
    options = {"n_predict": 24, "cache_prompt": False, "temperature": 1.0}
    first = client.complete(PROMPT, seed=-1, **options)
    seed = first["generation_settings"]["seed"]
    assert 0 <= seed < 2**32
    assert client.complete(PROMPT, seed=seed, **options)["content"] == first["content"]


def test_six_shapes_of_prompt(client):
    ids = client.post("/tokenize", {"content": "The capital of France is"}).json["tokens"]
    text = greedy(client, "The capital of France is")["content"]
    assert greedy(client, ids)["content"] == text
    assert greedy(client, [*ids[:2], " of France is"])["content"] == text
    several = greedy(client, ["The capital of France is", "One two three"])
    assert [one["index"] for one in several] == [0, 1]
    assert several[0]["content"] == text
    mixed = greedy(client, ["One two three", ids])
    assert [one["content"] for one in mixed] == [several[1]["content"], text]
    nested = greedy(client, [[*ids[:2], " of France is"], ids, "One two three"])
    assert [one["content"] for one in nested] == [text, text, several[1]["content"]]


def test_a_stream_of_several_prompts_carries_the_index(client):
    prompts = ["The capital of France is", "One two three"]
    body = {"prompt": prompts, "n_predict": 8, "temperature": 0, "stream": True, "cache_prompt": False}
    texts = {0: "", 1: ""}
    finals = []
    for event in client.events("/completion", body):
        texts[event["index"]] += event["content"]
        if event["stop"]:
            finals.append(event["index"])
    assert sorted(finals) == [0, 1]
    assert [texts[0], texts[1]] == [greedy(client, prompt)["content"] for prompt in prompts]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["prompt"]),
        ({"prompt": None}, ["prompt"]),
        ({"prompt": 5}, ["prompt"]),
        ({"prompt": []}, ["prompt"]),
        ({"prompt": [[]]}, ["prompt"]),
        ({"prompt": [True]}, ["prompt"]),
        ({"prompt": [1, None]}, ["prompt"]),
        ({"prompt": [49152]}, ["49152", "vocabulary"]),
        ({"prompt": [-1]}, ["-1"]),
        ({"prompt": "x", "temperature": "hot"}, ["temperature", "number"]),
        ({"prompt": "x", "temperature": True}, ["temperature"]),
        ({"prompt": "x", "top_k": 1.5}, ["top_k", "integer"]),
        ({"prompt": "x", "top_p": 1.5}, ["top_p", "between 0 and 1"]),
        ({"prompt": "x", "min_p": -1}, ["min_p"]),
        ({"prompt": "x", "n_predict": -3}, ["n_predict"]),
        ({"prompt": "x", "n_predict": 2**40}, ["n_predict"]),
        ({"prompt": "x", "seed": 2**63}, ["seed"]),
        ({"prompt": "x", "stop": 5}, ["stop"]),
        ({"prompt": "x", "stop": ["a"] * 65}, ["stop", "64"]),
        ({"prompt": "x", "stream": "yes"}, ["stream"]),
        ({"prompt": "x", "repeat_penalty": 0}, ["repeat_penalty"]),
        ({"prompt": "x", "samplers": ["top_q"]}, ["samplers", "top_q"]),
        ({"prompt": "x", "samplers": "q"}, ["samplers", "q"]),
        ({"prompt": "x", "mirostat": 3}, ["mirostat"]),
        ({"prompt": "x", "logit_bias": [[99999999, 1]]}, ["logit_bias", "99999999"]),
        ({"prompt": "x", "logit_bias": 3}, ["logit_bias"]),
        ({"prompt": "x", "response_fields": "content"}, ["response_fields"]),
        ({"prompt": "x", "dry_sequence_breakers": [""]}, ["dry_sequence_breakers"]),
        ({"prompt": "x", "dry_sequence_breakers": ["e" * 1025]}, ["dry_sequence_breakers", "1024 bytes"]),
        ({"prompt": "x", "dry_sequence_breakers": ["a"] * 65}, ["dry_sequence_breakers", "64"]),
        ({"prompt": "x", "samplers": ["top_k"] * 33}, ["samplers", "32"]),
        ({"prompt": "x", "stop": ["s" * 5000]}, ["stop", "4096"]),
        ({"prompt": "x", "temperature": 10**400}, ["temperature", "finite"]),
        ({"prompt": "x", "logit_bias": [[5, 1e300]]}, ["logit_bias", "finite"]),
        ({"prompt": "x", "logit_bias": [["long" * 100, 1]]}, ["logit_bias", "256"]),
        ({"prompt": "x", "logit_bias": [["a", 1]] * 1025}, ["logit_bias", "1024"]),
        ({"prompt": "x", "logit_bias": {"9" * 5000: 1}}, ["logit_bias"]),
        ({"prompt": [5] * 100_000}, ["100000 tokens"]),
        ({"prompt": [[5] * 100_000]}, ["100000 tokens"]),
        ({"prompt": ["a"] * 100_000}, ["--prompts-max"]),
    ],
)
def test_a_wrong_option_is_named(client, body, words):
    answer = client.post("/completion", body)
    assert answer.status == 400
    assert answer.error["type"] in ("invalid_request_error", "exceed_context_size_error")
    for word in words:
        assert word in answer.error["message"], answer.error


BROKEN = [
    b"",
    b"{",
    b"[1]",
    b'"text"',
    b"\xff\xfe",
    b"[" * 100000,
    b'{"prompt": "x\n"}',
    b'{"prompt": "\xff"}',
]


@pytest.mark.parametrize("body", BROKEN)
def test_a_body_that_is_no_json_object(client, body):
    answer = client.post("/completion", body)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("option", "status"),
    [
        ({"image_data": [{"data": "", "id": 1}]}, 501),
        ({"lora": [{"id": 0, "scale": 1}]}, 400),
    ],
)
def test_what_this_server_does_not_have_is_refused_and_named(client, option, status):
    answer = client.post("/completion", {"prompt": "x", **option})
    assert answer.status == status
    assert next(iter(option)) in answer.error["message"]


def test_a_prompt_beyond_the_context_states_both_numbers(client):
    answer = client.post("/completion", {"prompt": "word " * 3000})
    assert answer.status == 400
    assert answer.error["type"] == "exceed_context_size_error"
    assert answer.error["n_ctx"] == 2048
    assert answer.error["n_prompt_tokens"] > 2048


def test_stop_strings_end_the_text(client):
    plain = greedy(client, "Count: one, two, three,", n_predict=30)["content"]
    stop = plain[10:14]
    cut = greedy(client, "Count: one, two, three,", n_predict=30, stop=["never seen", stop])
    assert cut["content"] == plain[: plain.index(stop)]
    assert (cut["stop_type"], cut["stopped_word"], cut["stopping_word"]) == ("word", True, stop)
    single = greedy(client, "Count: one, two, three,", n_predict=30, stop=stop)
    assert single["content"] == cut["content"]


def test_n_predict_zero_fills_the_cache_only(client):
    prompt = "A prompt that nobody else here has used, read but not answered."
    result = client.complete(prompt, n_predict=0)
    assert (result["content"], result["tokens_predicted"], result["stop_type"]) == ("", 0, "limit")
    again = client.complete(prompt, n_predict=1)
    assert again["timings"]["prompt_n"] == 1
    assert again["timings"]["cache_n"] == result["tokens_evaluated"] - 1


def test_cache_prompt_false_reads_all_of_it(client):
    client.complete(PROMPT, n_predict=1)
    assert client.complete(PROMPT, n_predict=1, cache_prompt=False)["timings"]["cache_n"] == 0


def test_id_slot_chooses_the_slot(client):
    for slot in (3, 1):
        assert client.complete("x", n_predict=1, id_slot=slot)["id_slot"] == slot


@pytest.mark.real_model
def test_eos_ends_and_ignore_eos_goes_on(client):
    prompt = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    ended = greedy(client, prompt, n_predict=100)
    assert (ended["stop_type"], ended["stopped_eos"]) == ("eos", True)
    n_more = ended["tokens_predicted"] + 10
    ignored = greedy(client, prompt, n_predict=n_more, ignore_eos=True)
    assert (ignored["stop_type"], ignored["tokens_predicted"]) == ("limit", n_more)


def test_return_tokens_gives_the_ids_of_the_text(client):
    result = greedy(client, PROMPT, return_tokens=True)
    assert len(result["tokens"]) == result["tokens_predicted"]
    assert client.post("/detokenize", {"tokens": result["tokens"]}).json["content"] == result["content"]
    assert greedy(client, PROMPT)["tokens"] == []


def test_timings_per_token_are_in_every_event(client):
    body = {"prompt": PROMPT, "n_predict": 5, "stream": True, "timings_per_token": True}
    counts = [event["timings"]["predicted_n"] for event in client.events("/completion", body)]
    assert counts == [1, 2, 3, 4, 5, 5]


def test_response_fields_select_and_unnest(client):
    fields = ["content", "generation_settings/n_predict", "no_such", "timings/no_such"]
    result = client.complete(PROMPT, n_predict=2, response_fields=fields)
    assert set(result) == {"content", "generation_settings/n_predict"}
    assert result["generation_settings/n_predict"] == 2


def test_t_max_predict_ms_stops_after_a_new_line(client):
    """The grammar writes lines, or one line that does not end."""
    limits = {"n_predict": 400, "t_max_predict_ms": 1}
    result = client.complete(PROMPT, grammar=r'root ::= ([a-z] [a-z] "\n")*', ignore_eos=True, **limits)
    assert result["stop_type"] == "limit"
    assert result["tokens_predicted"] < 400
    assert result["content"].endswith("\n")
    assert result["has_new_line"] is True
    result = client.complete(PROMPT, grammar="root ::= [a-z]*", ignore_eos=True, **limits)
    assert (result["tokens_predicted"], result["has_new_line"]) == (400, False)


def test_a_full_context_shifts_and_says_so(tiny_client):
    prompt = "word " * 1990
    result = tiny_client.complete(prompt, n_predict=200, n_keep=3, temperature=0, ignore_eos=True)
    assert result["tokens_predicted"] == 200
    assert result["truncated"] is True
    assert result["tokens_cached"] < 2048


def test_n_predict_minus_two_ends_with_the_context(tiny_client):
    result = tiny_client.complete("word " * 2000, n_predict=-2, ignore_eos=True)
    assert (result["stop_type"], result["truncated"]) == ("limit", True)
    assert result["tokens_evaluated"] + result["tokens_predicted"] == 2048


@pytest.mark.real_model
def test_greedy_is_the_most_likely_and_top_k_one_agrees(client):
    assert (
        greedy(client, PROMPT)["content"]
        == greedy(client, PROMPT, temperature=1.0, top_k=1, seed=3)["content"]
    )


@pytest.mark.parametrize(
    "option",
    [
        {"repeat_penalty": 1.8},
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0},
        pytest.param({"dry_multiplier": 5.0}, marks=pytest.mark.real_model),
        {"mirostat": 1},
        {"mirostat": 2},
        {"typical_p": 0.1},
        {"top_n_sigma": 0.1},
        {"xtc_probability": 1.0, "xtc_threshold": 0.01},
        {"dynatemp_range": 0.9},
        {"min_p": 0.9},
        {"top_p": 0.05},
        {"top_k": 1},
        {"samplers": ["temperature"]},
        {"logit_bias": [[260, 50.0]]},
        pytest.param({"logit_bias": [[" the", False]]}, marks=pytest.mark.real_model),
        {"logit_bias": {"260": 50}},
    ],
)
def test_each_sampling_option_changes_the_text_and_is_echoed(client, option):
    base = {"n_predict": 24, "seed": 11, "temperature": 1.2, "cache_prompt": False}
    plain = client.complete("The cat and the dog and the cat and the dog and the", **base)
    other = client.complete("The cat and the dog and the cat and the dog and the", **base, **option)
    assert other["content"] != plain["content"]
    name = next(iter(option))
    if name != "logit_bias":
        assert other["generation_settings"][name] == option[name]


def test_long_prompts_take_the_worker_way(client):
    answer = client.post("/completion", {"prompt": "a " * 10000, "n_predict": 1})
    assert answer.status == 400
    assert answer.error["n_prompt_tokens"] >= 10000


def test_a_bias_for_a_digit_that_is_no_number_is_a_text(client):
    assert client.post("/completion", {"prompt": "x", "n_predict": 1, "logit_bias": {"²": 1}}).status == 200


@pytest.mark.real_model
def test_breakers_limit_dry_and_are_looked_for_once(client):
    """The first request with new breakers has its table made in a worker, the second finds it."""
    options = {"n_predict": 16, "temperature": 0.0, "dry_multiplier": 4.0, "cache_prompt": False}
    prompt = "The cat and the dog and the cat and the dog and the"
    plain = client.complete(prompt, **options, dry_sequence_breakers=[])
    broken = [
        client.complete(prompt, **options, dry_sequence_breakers=[" the", "x" * 1000]) for _ in range(2)
    ]
    assert broken[0]["content"] == broken[1]["content"] != plain["content"]
    assert broken[0]["generation_settings"]["dry_sequence_breakers"] == [" the", "x" * 1000]


def test_a_chain_may_be_long_and_repeat_itself(client):
    samplers = ["dry", "top_k", "top_p", "xtc"] * 8
    options = {"repeat_penalty": 1.1, "dry_multiplier": 0.5, "xtc_probability": 0.3, "seed": 4}
    answers = [client.complete(PROMPT, n_predict=8, samplers=samplers, **options) for _ in range(2)]
    assert answers[0]["content"] == answers[1]["content"]
    assert answers[0]["generation_settings"]["samplers"] == samplers
