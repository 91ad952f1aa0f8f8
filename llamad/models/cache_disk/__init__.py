"""The prompt cache on disk (--cache-disk): one file for each entry, an index in memory, and the thread that writes."""
