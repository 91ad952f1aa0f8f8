"""The official client on the server of all endpoint tests."""

import pytest
from support.clients.official_clients import anthropic


def client_of(server):
    return anthropic.Anthropic(
        base_url=f"http://{server.host}:{server.port}", api_key="none", max_retries=0, timeout=300
    )


@pytest.fixture
def official(client):
    return client_of(client)


@pytest.fixture
def thinking(thinker):
    return client_of(thinker)
