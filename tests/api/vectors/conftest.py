"""Servers over real weights: an embedding model, a reranker, a classifier; and a chat model that also embeds."""

import pytest
from support.live_daemon import Live
from support.models import bert_reference, bert_weights


@pytest.fixture(scope="session")
def minilm():
    return bert_weights.minilm()


@pytest.fixture(scope="session")
def embedding_server(minilm):
    with Live("--embedding", "-np", "2", "--metrics", model=bert_reference.cached_gguf(minilm)) as server:
        yield server


@pytest.fixture
def embedding(embedding_server):
    yield embedding_server.client
    embedding_server.wait_idle()


@pytest.fixture(scope="session")
def reranker():
    return bert_weights.reranker()


@pytest.fixture(scope="session")
def reranking(reranker):
    with Live("--reranking", model=bert_reference.cached_gguf(reranker)) as server:
        yield server.client


@pytest.fixture(scope="session")
def classifier():
    return bert_weights.classifier()


@pytest.fixture(scope="session")
def classifying(classifier):
    flags = ("--embedding", "--pooling", "rank", "--alias", "sorter")
    with Live(*flags, model=bert_reference.cached_gguf(classifier)) as server:
        yield server.client


@pytest.fixture(scope="session")
def beside(tiny):
    """Generates and embeds; what it pools by default is nothing."""
    flags = ("--embedding", "-c", "512", "-np", "2", "-ub", "64", "--inputs-max", "9")
    with Live(*flags, model=tiny) as server:
        yield server.client
