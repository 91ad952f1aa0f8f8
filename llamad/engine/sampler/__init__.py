"""The sampler chain: llama.cpp's arithmetic over rows of logits. Runs in the sampler threads."""
