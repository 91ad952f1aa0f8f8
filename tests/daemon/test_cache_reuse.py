"""A prompt whose middle was removed is served from what the slot held behind it (--cache-reuse), over HTTP and beside
llama-server."""

import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.peer import llama_server

HEAD, DROPPED, KEPT, SHORT, TAIL = (
    [1000 + 211 * part + 7 * i for i in range(n)] for part, n in enumerate((96, 80, 128, 40, 24))
)
WHOLE = HEAD + DROPPED + KEPT + DROPPED[:20] + SHORT
EDITED = HEAD + KEPT + SHORT + TAIL  # SHORT is below the limit
FLAGS = ("-np", "1", "-c", "1024", "--cache-reuse", "64", "--cache-ram", "0")


def cached(client: Client, prompt: list[int], **options) -> tuple[int, int]:
    """Of the prompt's tokens: those that were there, and those that were read."""
    timings = client.complete(prompt, n_predict=2, temperature=0, **options)["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == len(prompt)
    return timings["cache_n"], timings["prompt_n"]


def n_reused(client: Client) -> int:
    assert cached(client, WHOLE)[0] <= 1
    n = cached(client, EDITED)[0]
    # What was moved is now a prefix like any other.
    assert cached(client, EDITED)[0] == len(EDITED) - 1
    return n


def test_the_flag_moves_chunks_as_llama_server_does(tiny):
    with Live(*FLAGS, model=tiny) as server:
        ours = n_reused(server.client)
        assert ours == len(HEAD) + len(KEPT)
        assert cached(server.client, WHOLE)[0] == len(HEAD)  # chunks move to lower positions alone
    with llama_server(tiny, *FLAGS) as peer:
        theirs = n_reused(peer)
    assert len(HEAD) < theirs <= ours


@pytest.mark.parametrize(("n_least", "n_cached"), [(0, 96), (64, 224), (128, 224), (129, 96), (32, 264)])
def test_the_field_says_how_long_a_chunk_must_be(client, n_least, n_cached):
    client.complete(WHOLE, n_predict=1, id_slot=0)
    assert cached(client, EDITED, id_slot=0, n_cache_reuse=n_least)[0] == n_cached
    client.post("/slots/0?action=erase", {})


@pytest.mark.real_model
def test_the_text_goes_on_behind_a_moved_chunk(client):
    opening = "Here is a list of the numbers that a child learns in the first year at school. "
    aside = "The weather was fine, and the windows of the old house by the river stood wide open. " * 3
    counting = "one two three four five six seven eight nine ten " * 8 + "one two three"
    client.complete(opening + aside + counting, n_predict=2, id_slot=0)
    answer = client.complete(opening + counting, n_predict=6, temperature=0, id_slot=0, n_cache_reuse=32)
    assert answer["timings"]["cache_n"] > 80 > answer["timings"]["prompt_n"]
    assert answer["content"] == " four five six seven eight nine"
