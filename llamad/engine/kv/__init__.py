"""The KV cache: slots, the queue of tasks, and prompts kept in host memory. Engine thread."""
