"""Models by name: lists the files of a hub's repository, manages the cache, and downloads into it."""
