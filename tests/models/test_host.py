"""When an engine that ended is started again, and when not; how far a load is."""

from llamad.flags.parse import parse
from llamad.models.host import Host, LoadProgress
from llamad.models.restarts import DELAY_MAX_SECONDS, N_ENDS_MAX, N_LOADS_MAX, SOUND_SECONDS, Restarts
from llamad.protocol.control_messages import Progress


def test_one_end_is_followed_by_a_start_at_once():
    restarts = Restarts()
    assert [restarts.delay(SOUND_SECONDS) for _ in range(50)] == [0.0] * 50
    assert restarts.n_total == 50


def test_ends_in_a_row_are_followed_by_longer_and_longer_pauses_and_then_by_nothing():
    restarts = Restarts()
    delays = [restarts.delay(1.0) for _ in range(N_ENDS_MAX)]
    assert delays[-1] is None
    waited = [delay for delay in delays if delay is not None]
    assert waited == sorted(waited)
    assert waited[:4] == [0.0, 1.0, 2.0, 4.0]
    assert max(waited) == DELAY_MAX_SECONDS
    assert "ended 10 times" in restarts.reason()


def test_engines_that_never_serve_are_given_up_sooner():
    restarts = Restarts()
    assert [restarts.delay(None) for _ in range(N_LOADS_MAX)] == [0.0, 1.0, 2.0, None]
    assert "4 starts in a row failed" in restarts.reason()


def test_an_engine_that_serves_makes_up_for_those_that_did_not():
    restarts = Restarts()
    for _ in range(20):
        assert restarts.delay(None) == 0.0
        assert restarts.delay(SOUND_SECONDS) == 0.0


def test_ends_that_are_explained_do_not_count():
    restarts = Restarts()
    for _ in range(20):
        assert restarts.delay(None) == 0.0
        restarts.forgive()
    assert restarts.n_total == 20


def test_a_load_tells_how_far_it_is():
    host = Host(parse(["-m", "a.gguf"], {}).settings)
    assert host.progress == LoadProgress("load")
    host._on_message(Progress(437))
    assert host.progress == LoadProgress("load", 43)
    assert host.progress.text() == "loading model: 43 %"
