"""The process in which pixels and samples become rows of embeddings."""
