"""The KV cache: slots, the task queue, and prompts kept in host memory. Engine thread."""
