"""Chooses between JSON and the raw blob by the Accept header. A pure function; must not fail on any text."""

from __future__ import annotations


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                q = float(value)
            except ValueError:
                return 0.0
            return q if 0.0 <= q <= 1.0 else 0.0
    return 1.0


def wants_octets(accept: str) -> bool:
    """Whether the Accept header prefers application/octet-stream to JSON, by weight and then by specificity."""
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = part.split(";")
        ranges[kind.strip().lower()] = _q(parameters)

    def rank(subtype: str) -> tuple[float, int]:
        for exactness, kind in ((2, f"application/{subtype}"), (1, "application/*"), (0, "*/*")):
            if kind in ranges:
                return ranges[kind], exactness
        return 0.0, 0

    octets = rank("octet-stream")
    return octets[0] > 0 and octets > rank("json")
