"""Servers over the bigram model, one for each set of flags, shared by the tests of a module."""

import pytest
from support.live_daemon import Live
from support.models.bigram_model import write_bigram

# Every sampler is neutral: what a test adds is the only thing that changes the draw.
NEUTRAL = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "seed": 1,
    "n_predict": 200,
}


class Bigram:
    """A server, asked with neutral samplers and whatever a test adds."""

    def __init__(self, server):
        self.server = server
        self.client = server.client

    def ask(self, prompt, **options):
        return self.client.complete(prompt, **{**NEUTRAL, **options})

    def text(self, prompt, **options):
        return self.ask(prompt, **options)["content"]

    def greedy(self, prompt, **options):
        return self.text(prompt, **{"temperature": 0, "n_predict": 12, **options})

    def refused(self, body, *words, status=400):
        answer = self.client.post("/completion", body)
        assert answer.status == status, answer.body
        for word in words:
            assert word in answer.error["message"], answer.error
        return answer.error


@pytest.fixture(scope="session")
def bigram_path(tmp_path_factory):
    return write_bigram(tmp_path_factory.mktemp("bigram") / "bigram.gguf")


@pytest.fixture(scope="session")
def bigram_server(bigram_path):
    with Live("-np", "2", "-c", "512", model=bigram_path) as server:
        yield server


@pytest.fixture
def bigram(bigram_server):
    """Two slots of 256 tokens, no flag that touches an option."""
    yield Bigram(bigram_server)
    bigram_server.wait_idle()


@pytest.fixture
def started(bigram_path):
    """Start another server over the model: started("--flag", ...)."""
    servers = []

    def start(*flags, n_slots=1):
        servers.append(Live("-np", str(n_slots), "-c", str(256 * n_slots), *flags, model=bigram_path))
        return Bigram(servers[-1])

    yield start
    for server in servers:
        server.__exit__()
