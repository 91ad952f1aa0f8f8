"""Owns the error of media that cannot be had."""


class SourceError(Exception):
    """Says what is wrong with an address or what lies there, in a sentence for whoever sent it."""
