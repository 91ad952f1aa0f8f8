"""How well the memory of a model is foretold, and what --fit makes of it, beside llama-server."""
