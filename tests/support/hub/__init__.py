"""A model hub for tests."""
