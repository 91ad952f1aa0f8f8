"""Daemons with many models, ours and llama-server's, over the same files."""
