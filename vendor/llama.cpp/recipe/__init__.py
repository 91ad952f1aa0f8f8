"""How llamad gets its llama.cpp, its default model and its Python environment, using the standard library
only. Runs at build time, never in the daemon; it knows nothing of the `llamad` package.
"""
