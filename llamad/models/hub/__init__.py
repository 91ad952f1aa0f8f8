"""Models by name: what a repository of a hub holds, what is in the cache, and downloads into it."""
