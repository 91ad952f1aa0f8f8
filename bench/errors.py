"""The only error of this package: one line that says what went wrong and what to do."""


class BenchError(Exception):
    """A measurement cannot be made."""
