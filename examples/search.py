"""Find the sentences nearest in meaning to a question, by embeddings: python search.py "A question"

Needs a server started with --embedding, best with an embedding model.
"""

import os
import sys

import requests

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
SENTENCES = [
    "The cat sleeps on the sofa all day.",
    "Paris is the capital of France.",
    "Water boils at one hundred degrees.",
    "He plays the guitar in a band.",
]
query = sys.argv[1] if len(sys.argv) > 1 else "What is the capital city of France?"

response = requests.post(f"{URL}/v1/embeddings", json={"input": [query, *SENTENCES]}, timeout=600)
if not response.ok:
    sys.exit(response.json()["error"]["message"])
asked, *vectors = [item["embedding"] for item in response.json()["data"]]


def nearness(vector):
    """The cosine of the angle between the two: vectors come with the length 1."""
    return sum(a * b for a, b in zip(asked, vector, strict=True))


for vector, sentence in sorted(zip(vectors, SENTENCES, strict=True), key=lambda one: -nearness(one[0])):
    print(f"{nearness(vector):.3f}  {sentence}")
