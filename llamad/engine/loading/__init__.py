"""Creates llama.cpp's model and contexts from the flags: memory, placement, threads. Runs in the loader thread."""
