"""Fetches and builds llama.cpp, and fetches the default model. Uses only the standard library.
Runs at build time, never in the daemon; knows nothing of the `llamad` package.
"""
