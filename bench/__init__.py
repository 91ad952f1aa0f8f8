"""Measures llamad and, beside it, llama-server. `python -m bench --help` says how; README.md how to read it."""
