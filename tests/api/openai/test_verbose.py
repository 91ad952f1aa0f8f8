"""__verbose in OpenAI's answers: the result as /completion gives it, for debugging only."""

import json

import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
REQUESTS = [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "x", "max_tokens": 3})]

PARSED = {
    "/v1/chat/completions": ("generic", "<|im_start|>assistant\n"),
    "/v1/completions": ("Content-only", ""),
}


@pytest.mark.parametrize(
    ("flags", "field", "is_told"),
    [
        (("-v",), {}, True),
        (("-lv", "5"), {"verbose": True}, True),
        (("-lv", "5"), {}, False),
        ((), {"verbose": False}, False),
    ],
)
def test_it_is_there_with_the_flag_or_the_field(flags, field, is_told):
    with Faked(Fake(), "--chat-template", "chatml", *flags) as server:
        for path, sent in REQUESTS:
            body = {**sent, **field}
            whole = server.client.post(path, body).json
            lines = server.client.post(path, {**body, "stream": True}).body.decode().split("\n\n")
            told = [json.loads(line.removeprefix("data: ")) for line in lines if "__verbose" in line]
            assert ("__verbose" in whole) is is_told
            assert len(told) == (1 if is_told else 0)
            if is_told:
                assert whole["__verbose"]["tokens_predicted"] == 3
                assert whole["__verbose"]["content"]
                assert "x" in told[0]["__verbose"]["prompt"]
                shown = told[0]["__verbose"]["generation_settings"]
                assert shown["n_predict"] == 3
                assert (shown["chat_format"], shown["generation_prompt"]) == PARSED[path]
