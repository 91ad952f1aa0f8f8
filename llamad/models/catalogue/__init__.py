"""Which models there are: from a preset, a folder, and the cache of downloaded models."""
