"""n completions of one prompt: its reading is shared, the draws are not."""

import pytest
from support.live_daemon import Live

# So certain that no rounding changes the text: logits depend on the shapes in which they were computed.
COUNTING = "one two three four five six seven eight nine ten " * 3 + "one two three"
PROMPT = "Building a website can be done in 10 simple steps:"


def seeds(results):
    return [one["generation_settings"]["seed"] for one in results]


@pytest.fixture(scope="module")
def unified():
    with Live("-np", "4", "-c", "2048", "--kv-unified") as server:
        yield server.client


@pytest.fixture(params=["streams", "unified"])
def either(request, client):
    """A cache for each slot, and one for all, of the real model."""
    return client if request.param == "streams" else request.getfixturevalue("unified")


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["n", "n_cmpl"])
def test_n_completions_read_the_prompt_once(either, name):
    results = either.complete(COUNTING, **{name: 4}, n_predict=12, temperature=0, cache_prompt=False)
    assert [one["index"] for one in results] == [0, 1, 2, 3]
    n_prompt = results[0]["tokens_evaluated"]
    assert [one["timings"]["prompt_n"] for one in results] == [n_prompt, 0, 0, 0]
    assert [one["timings"]["cache_n"] for one in results] == [0] + [n_prompt] * 3
    # Greedy: all write the same, and what they share was not disturbed.
    assert {one["content"] for one in results} == {
        " four five six seven eight nine ten one two three four five"
    }


@pytest.mark.real_model
def test_each_draws_with_a_seed_of_its_own(either):
    options = {"n_predict": 16, "temperature": 1.5, "cache_prompt": False}
    results = either.complete(PROMPT, n=3, seed=42, **options)
    assert seeds(results) == [42, 43, 44]
    assert len({one["content"] for one in results}) == 3
    assert results[0]["generation_settings"]["n"] == results[0]["generation_settings"]["n_cmpl"] == 3


def test_a_seed_that_was_told_gives_its_text_again(client):
    options = {"n_predict": 16, "temperature": 1.5, "cache_prompt": False}
    results = client.complete(PROMPT, n=3, seed=42, **options)
    assert client.complete(PROMPT, seed=42, **options)["content"] == results[0]["content"]


def test_a_random_seed_is_counted_upwards_and_told(client):
    used = seeds(client.complete(PROMPT, n=3, seed=-1, n_predict=2))
    assert [seed - used[0] for seed in used] == [0, 1, 2]


def test_more_completions_than_slots_wait_for_one(client):
    results = client.complete(PROMPT, n=8, n_predict=4, temperature=0, cache_prompt=False)
    n_prompt = results[0]["tokens_evaluated"]
    assert [one["timings"]["cache_n"] for one in results] == [0] + [n_prompt] * 7
    assert len({one["content"] for one in results}) == 1


def test_several_prompts_times_n(client):
    results = client.complete(["One two three", "The capital of France is"], n=2, n_predict=6, temperature=0)
    assert [one["index"] for one in results] == [0, 1, 2, 3]
    assert [one["prompt"] for one in results] == ["One two three"] * 2 + ["The capital of France is"] * 2
    assert results[0]["content"] == results[1]["content"] != results[2]["content"] == results[3]["content"]


def test_streams_of_n_carry_their_index(client):
    body = {"prompt": PROMPT, "n": 3, "n_predict": 8, "temperature": 1.2, "seed": 9, "cache_prompt": False}
    whole = client.post("/completion", body).json
    events = list(client.events("/completion", {**body, "stream": True}))
    for i in range(3):
        mine = [event for event in events if event["index"] == i]
        assert "".join(event["content"] for event in mine) == whole[i]["content"]
        assert [event["stop"] for event in mine] == [False] * (len(mine) - 1) + [True]
        assert mine[-1]["generation_settings"]["seed"] == 9 + i


def test_one_completion_is_an_object_as_ever(client):
    assert client.complete(PROMPT, n=1, n_predict=1)["index"] == 0


@pytest.mark.parametrize(("n", "said"), [(9, "--n-max"), (0, "at least 1"), ("2", "integer")])
def test_n_has_its_limits(client, n, said):
    answer = client.post("/completion", {"prompt": "x", "n": n})
    assert answer.status == 400
    assert said in answer.error["message"]
    assert '"n"' in answer.error["message"]


@pytest.mark.real_model
def test_a_prefix_in_a_busy_slot_is_taken_over(client):
    """Another request, while the first still writes."""
    prompt = "Once upon a time there was a little town by the sea. " * 4
    body = {"prompt": prompt, "n_predict": 400, "temperature": 0, "stream": True, "ignore_eos": True}
    events = client.events("/completion", body)
    next(events)
    options = {"n_predict": 1, "temperature": 0, "n_probs": 1}
    second = client.complete(prompt + "Once upon a", **options)
    assert second["timings"]["cache_n"] >= len(prompt.split()) - 1
    again = client.complete(prompt + "Once upon a", **options, cache_prompt=False)
    assert again["timings"]["cache_n"] == 0
    assert again["content"] == second["content"] == " time"
    logprobs = [one["completion_probabilities"][0]["logprob"] for one in (second, again)]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=0.2)
    events.close()
