"""Ollama's API: chats, completions, embeddings and the list of models, in its shapes."""
