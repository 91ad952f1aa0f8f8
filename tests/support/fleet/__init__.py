"""The scheduler of many models under test: by hand, and in a simulated world."""
