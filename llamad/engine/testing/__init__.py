"""A fake llama.cpp for tests. Not in the wheel."""
