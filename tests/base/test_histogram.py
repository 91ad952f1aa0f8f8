"""base/histogram.pyx: what a Prometheus histogram counts."""

import pytest

from llamad.base.histogram import Histogram


def test_values_fall_into_the_first_bucket_that_holds_them() -> None:
    histogram = Histogram("acme:seconds", "Time.", (0.5, 1.0, 10.0))
    histogram.observe(0.1)
    histogram.observe(1.0)  # a bound belongs to its bucket
    histogram.observe(2.0, 3)
    histogram.observe(11.0)
    assert histogram.samples() == [
        ("acme:seconds_bucket", (("le", "0.5"),), "1"),
        ("acme:seconds_bucket", (("le", "1"),), "2"),
        ("acme:seconds_bucket", (("le", "10"),), "5"),
        ("acme:seconds_bucket", (("le", "+Inf"),), "6"),
        ("acme:seconds_sum", (), "18.1"),
        ("acme:seconds_count", (), "6"),
    ]


def test_the_number_of_bounds_is_limited() -> None:
    with pytest.raises(ValueError, match="at most 32 bounds"):
        Histogram("acme:seconds", "Time.", tuple(map(float, range(33))))
