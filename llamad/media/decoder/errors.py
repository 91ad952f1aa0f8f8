"""The error for a file that cannot be decoded."""


class UnreadableError(Exception):
    """What is wrong with the file; the text follows "the image " or "the sound "."""
