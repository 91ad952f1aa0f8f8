"""A short run of the fuzz target for POST /completion (fuzz/fuzz_completion.py has the long one)."""

import pytest
from hypothesis import HealthCheck, given, settings
from support.completion_bodies import bodies, check_answer
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake


@pytest.fixture(scope="module")
def server():
    with Faked(Fake(), "-np", "2") as server:
        yield server


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies)
def test_every_body_is_answered(server, body):
    check_answer(server, body)
