"""Chat templates that take long: others are served meanwhile, and the prompts are the same."""

import threading
import time

import pytest
from support.fake_daemon import Faked

from llamad.api.service.served_model import CHAT_INLINE_MAX
from llamad.engine.testing.fake import Fake

# The bound is generous, as tests share their machine: on the event loop this took seconds.
DELAY_MAX = 1.0
# Slow, or large for a moment, if the user asks for it.
TEMPLATE = (
    "{% if messages[0].content == 'slow' %}"
    "{% for i in range(3000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}"
    "{% elif messages[0].content == 'large' %}{{ ('x' * 4000000)[:2] }}"
    "{% endif %}<{{ messages[0].content }}>"
)
PATHS = (
    "/apply-template",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
)


@pytest.fixture(scope="module")
def server():
    with Faked(Fake(), "--chat-template", TEMPLATE, "-np", "2") as server:
        yield server


def prompt_of(server, content):
    answer = server.client.post("/apply-template", {"messages": [{"role": "user", "content": content}]})
    assert answer.status == 200, answer.body
    return answer.json["prompt"]


@pytest.mark.parametrize("path", PATHS)
def test_others_are_served_while_a_template_runs(server, path):
    body = {"messages": [{"role": "user", "content": "slow"}], "max_tokens": 1}
    if path == "/v1/responses":
        body = {"input": "slow", "max_output_tokens": 16}
    found = []
    thread = threading.Thread(target=lambda: found.append(server.client.post(path, body)))
    thread.start()
    slowest = 0.0
    while thread.is_alive():
        t_start = time.monotonic()
        assert server.client.get("/health").status == 200
        slowest = max(slowest, time.monotonic() - t_start)
    thread.join()
    assert found[0].status == 200, found[0].body
    assert slowest < DELAY_MAX


def test_a_slow_prompt_is_the_same_and_quick_ones_stay_on_the_event_loop(server):
    served = server.served
    for content, prompt in (("slow", "<slow>"), ("large", "xx<large>"), ("quick", "<quick>")):
        assert prompt_of(server, content) == prompt
    # The first took too long; the last, from a worker, did not.
    assert 0 < served.chat_inline_max < CHAT_INLINE_MAX
    assert prompt_of(server, "quick" * 1000) == "<" + "quick" * 1000 + ">"
    assert served.chat_inline_max > 5000
