"""The error for media that cannot be fetched."""


class SourceError(Exception):
    """A sentence for the client that says what is wrong with an address or the file there."""
