"""A short run of the fuzz target for JSON bodies of every endpoint (fuzz/fuzz_json_bodies.py has the long one)."""

import pytest
from hypothesis import HealthCheck, given, settings
from support.fake_daemon import Faked
from support.json_bodies import EMBEDDING, GENERATING, RANKING, Vectors, check_answer, requests

from llamad.engine.testing.fake import Fake

KINDS = {
    "generating": (GENERATING, ("--slots", "--props", "-n", "4", "--n-predict-max", "40"), None),
    "embedding": (EMBEDDING, ("--embedding",), "mean"),
    "ranking": (RANKING, ("--reranking",), "rank"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_body_is_answered(kind):
    structs, flags, pooling = KINDS[kind]

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(request=requests(structs))
    def check(request):
        check_answer(server, *request)

    with Faked(Fake(), "-np", "2", *flags, vectors=None if pooling is None else Vectors(pooling)) as server:
        check()
        assert server.client.get("/health").status == 200
