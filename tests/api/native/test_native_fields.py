"""Other names of /completion's options, and what of llama-server's fields is left out or refused by name."""

import pytest


def test_other_names_of_the_limit_and_of_the_probabilities(client):
    result = client.complete("x", max_completion_tokens=3, logprobs=2, ignore_eos=True)
    assert result["tokens_predicted"] == 3
    assert {len(one["top_logprobs"]) for one in result["completion_probabilities"]} == {2}
    told = client.complete("x", n_predict=1, logprobs=True)["completion_probabilities"]
    assert [len(one["top_logprobs"]) for one in told] == [1]
    for wrong in ("a", -1, 1.5):
        assert (
            client.post("/completion", {"prompt": "x", "logprobs": wrong})
            .error["message"]
            .startswith('"logprobs"')
        )
    assert client.complete("x", max_completion_tokens=3, n_predict=1)["tokens_predicted"] == 1


def test_usage_in_a_stream(client):
    body = {"prompt": "x", "n_predict": 2, "stream": True, "ignore_eos": True}
    *_, last = client.events("/completion", {**body, "stream_options": {"include_usage": True}})
    assert last["usage"]["completion_tokens"] == 2
    *_, last = client.events("/completion", body)
    assert "usage" not in last


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backend_sampling", True),
        ("preserved_tokens", ["<|im_start|>"]),
        ("grammar_triggers", [{"type": 0, "value": "x"}]),
        ("generation_prompt", "x"),
        ("chat_format", 2),
        ("reasoning_format", "deepseek"),
    ],
)
def test_what_is_left_out_is_named(client, field, value):
    answer = client.post("/completion", {"prompt": "x", "n_predict": 1, field: value})
    assert answer.status == 200, answer.body
    assert answer.headers["x-llamad-ignored"] == field


@pytest.mark.parametrize(
    "body", [{"grammar": 'root ::= "x"', "grammar_lazy": True}, {"reasoning_budget_tokens": 5}]
)
def test_a_constraint_is_not_left_out(client, body):
    answer = client.post("/completion", {"prompt": "x", "n_predict": 1, **body})
    assert answer.status == 400
    assert f'"{list(body)[-1]}"' in answer.error["message"]
    assert client.post("/completion", {"prompt": "x", "n_predict": 1, **dict.fromkeys(body)}).status == 200
