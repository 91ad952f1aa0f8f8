"""The sampler chain: llama.cpp's arithmetic over rows of logits. Sampler threads."""
