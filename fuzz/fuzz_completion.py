"""Sends any JSON object to POST /completion, for a long time.

Invariant: every body gets a complete response: a 200, or a 400 or 501 that says what is wrong; never a 500, and never
none. At the end every slot is idle, every sampler is closed, and llama.cpp's rules were kept (Faked.__exit__).
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from support.completion_bodies import bodies, check_answer
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))


@pytest.fixture(scope="module")
def server():
    with Faked(Fake(), "-np", "2") as server:
        yield server


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=bodies)
def test_every_body_is_answered(server, body):
    check_answer(server, body)
