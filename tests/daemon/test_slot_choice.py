"""Which slot a request runs in, over a real socket."""

import pytest
from support.live_daemon import Live

OPENING = "Tell me a story about "
TOPICS = ("a fox in the snow", "two ships at sea", "the last train home")


@pytest.mark.parametrize("cache", [(), ("--kv-unified",)])
def test_without_similarity_requests_spread_and_still_reuse(tiny, cache):
    """All prompts begin alike. With 0 as the least share, the slot with the longest common prefix was slot 0 for every
    request, and each replaced what the one before it had computed."""
    with Live("-np", "3", "-c", "3072", "-sps", "0.0", *cache, model=tiny) as server:
        prompts = [OPENING + topic for topic in TOPICS]
        first = [server.client.complete(prompt, n_predict=2) for prompt in prompts]
        again = [server.client.complete(prompt, n_predict=2) for prompt in prompts]
    assert sorted(one["id_slot"] for one in first) == [0, 1, 2]
    assert [one["id_slot"] for one in again] == [one["id_slot"] for one in first]
    # The last token is always computed again, for its logits.
    assert [one["timings"]["prompt_n"] for one in again] == [1, 1, 1]
