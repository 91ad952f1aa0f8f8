"""Owns the error of a file that cannot be read."""


class UnreadableError(Exception):
    """Says what is wrong with the file, so that it can follow "the image " or "the sound "."""
