"""The endpoints that answer with vectors and scores: embeddings, reranking, classification."""
