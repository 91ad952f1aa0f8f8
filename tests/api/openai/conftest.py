"""The official OpenAI client over the endpoints' one real server."""

import pytest
from support.clients.official_clients import openai


@pytest.fixture
def official(client):
    with openai.OpenAI(
        base_url=f"http://{client.host}:{client.port}/v1", api_key="none", max_retries=0
    ) as made:
        yield made
