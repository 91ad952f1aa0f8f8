"""The types of flags and of their values."""
