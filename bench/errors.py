"""The one error of this package: what went wrong and what to do, in a line."""


class BenchError(Exception):
    """A measurement that cannot be made."""
