"""A fake llama.cpp for tests. It is not in the wheel."""
