"""Sends JSON bodies to every endpoint that takes one, for a long time.

Invariant: every body, valid or not, small or large, gets a complete response: a 2xx, or a 4xx or 501 that says what is
wrong in the form of its dialect; never a 500, and never none. The server goes on: at the end every slot is idle, every
sampler is closed, and llama.cpp's rules were kept (Faked.__exit__).

Bodies follow the structs into which they are decoded (tests/support/json_bodies.py), so that a new option is fuzzed
without a change here. `make fuzz` runs it; LLAMAD_FUZZ_CASES says how long.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from support.fake_daemon import Faked
from support.json_bodies import EMBEDDING, GENERATING, RANKING, Vectors, check_answer, requests

from llamad.engine.testing.fake import Fake

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
long = settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
LIMITS = ("-n", "4", "--n-predict-max", "40")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("states"))
    with Faked(Fake(), "-np", "2", "--slots", "--props", "--slot-save-path", folder, *LIMITS) as server:
        yield server
        assert server.client.get("/health").json["slots_idle"] == 2


@pytest.fixture(scope="module")
def embedding():
    with Faked(Fake(), "--embedding", vectors=Vectors("mean")) as server:
        yield server


@pytest.fixture(scope="module")
def ranking():
    with Faked(Fake(), "--reranking", vectors=Vectors("rank")) as server:
        yield server


@long
@given(request=requests(GENERATING))
def test_generation(server, request):
    check_answer(server, *request)


@settings(long, max_examples=N_CASES // 4)
@given(request=requests(EMBEDDING))
def test_embeddings(embedding, request):
    check_answer(embedding, *request)


@settings(long, max_examples=N_CASES // 4)
@given(request=requests(RANKING))
def test_scores(ranking, request):
    check_answer(ranking, *request)
