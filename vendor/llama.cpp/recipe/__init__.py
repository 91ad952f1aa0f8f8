"""How llamad gets its llama.cpp and its default model; standard library only.
Runs at build time, never in the daemon; knows nothing of the `llamad` package.
"""
