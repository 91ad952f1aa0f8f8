"""From flags to llama.cpp's model and contexts: memory, placement, threads. Loader thread."""
