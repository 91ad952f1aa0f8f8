"""How llamad gets its llama.cpp, its default model and its Python environment; standard library only.
Runs at build time, never in the daemon; knows nothing of the `llamad` package.
"""
