"""The official OpenAI client asks for embeddings: base64 by default, numbers on request, errors as its own types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.clients.official_clients import openai


@pytest.fixture
def official(embedding: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"http://{embedding.host}:{embedding.port}/v1", api_key="none", max_retries=0
    )


def test_vectors(official: openai.OpenAI) -> None:
    plain = official.embeddings.create(model="any", input=["hello", "world"])
    assert plain.usage.prompt_tokens == 6
    assert [one.index for one in plain.data] == [0, 1]
    numbers = official.embeddings.create(model="any", input=["hello", "world"], encoding_format="float")
    for one, other in zip(plain.data, numbers.data, strict=True):
        assert len(one.embedding) == 384
        assert np.allclose(one.embedding, other.embedding, atol=1e-6)
    assert len(official.embeddings.create(model="any", input="hello", dimensions=8).data[0].embedding) == 8


def test_errors(official: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="must not be empty"):
        official.embeddings.create(model="any", input=[])
    with pytest.raises(openai.BadRequestError, match="602 tokens"):
        official.embeddings.create(model="any", input="word " * 600)
