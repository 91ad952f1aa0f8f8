"""What is learned of the disk's speed."""

import pytest

from llamad.models.cache_disk.read_speed import BYTES_MIN, SPEED_DEFAULT, WINDOW_BYTES, ReadSpeed

PIECE = 1 << 20


class Disk:
    """A disk that reads `speed` bytes a second, for however many threads at once."""

    def __init__(self, speed: float) -> None:
        self.seconds = 0.0
        self.speed = speed
        self.learned = ReadSpeed(lambda: self.seconds)

    def read(self, n_bytes: int, n_threads: int = 1) -> None:
        for _ in range(n_threads):
            self.learned.begin()
        for _ in range(n_bytes // PIECE):
            self.seconds += PIECE / self.speed
            self.learned.count(PIECE)
        for _ in range(n_threads):
            self.learned.end()

    @property
    def ratio(self) -> float:
        """What is learned, as a share of what is true."""
        return 1e9 / self.learned.seconds(10**9) / self.speed


@pytest.mark.parametrize("n_threads", [1, 16])
def test_threads_that_share_the_disk_do_not_make_it_seem_slow(n_threads):
    disk = Disk(2e9)
    for _ in range(20):
        disk.read(WINDOW_BYTES, n_threads)
    assert disk.ratio == pytest.approx(1, rel=0.01)


def test_time_in_which_nothing_is_read_does_not_count():
    disk = Disk(2e9)
    for _ in range(20):
        disk.read(BYTES_MIN)
        disk.seconds += 60
    assert disk.ratio == pytest.approx(1, rel=0.01)


def test_few_bytes_say_nothing_but_together_they_do():
    disk = Disk(1e7)
    disk.read(BYTES_MIN - PIECE)
    disk.learned.took(BYTES_MIN - PIECE, 1000.0)
    disk.learned.measured(0, 1.0)
    assert disk.learned.seconds(10**9) == 1e9 / SPEED_DEFAULT
    for _ in range(400):
        disk.read(PIECE)
    assert disk.ratio == pytest.approx(1, rel=0.1)


def test_a_read_that_hangs_costs_the_others_little():
    disk = Disk(2e9)
    disk.learned.begin()
    for _ in range(20):
        disk.seconds += 3600
        disk.read(16 * WINDOW_BYTES)
    assert disk.ratio > 0.9


def test_what_a_prompt_takes_beyond_reading_counts():
    disk = Disk(2e9)
    for _ in range(20):
        disk.read(WINDOW_BYTES)
        disk.learned.took(WINDOW_BYTES, 2 * WINDOW_BYTES / disk.speed)
    assert disk.ratio == pytest.approx(0.5, rel=0.01)
    for _ in range(20):
        disk.learned.took(4 * WINDOW_BYTES, 4 * WINDOW_BYTES / disk.speed)  # with three others before it
    assert disk.ratio == pytest.approx(1, rel=0.01)


def test_a_disk_that_seemed_too_slow_is_tried_again():
    disk = Disk(2e9)
    disk.learned.measured(BYTES_MIN, 8.0)
    disk.learned.took(BYTES_MIN, 3600.0)
    n_refused = 0
    while disk.learned.seconds(10**9) > 1:
        disk.learned.doubt()
        n_refused += 1
    assert n_refused < 1500
    disk.read(64 * WINDOW_BYTES)
    assert disk.ratio == pytest.approx(1, rel=0.01)
