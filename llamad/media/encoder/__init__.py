"""The process that turns pixels and samples into embeddings."""
