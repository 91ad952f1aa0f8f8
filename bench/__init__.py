"""One program, `python -m bench`: llamad measured beside llama-server. README.md explains it."""
