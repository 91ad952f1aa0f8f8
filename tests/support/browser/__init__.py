"""A browser for tests: Chromium without a window, and the tools that look at a page in it."""
