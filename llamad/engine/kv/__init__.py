"""The KV cache: slots, the task queue, and the prompt cache in host memory. Runs in the engine thread."""
