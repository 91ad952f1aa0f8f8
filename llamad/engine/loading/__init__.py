"""Creates llama.cpp's model and contexts from flags: memory, placement, threads. Loader thread."""
