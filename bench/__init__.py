"""`python -m bench`: measures llamad and llama-server. README.md explains it."""
