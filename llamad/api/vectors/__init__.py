"""The endpoints that return vectors and scores: embeddings, reranking, classification."""
