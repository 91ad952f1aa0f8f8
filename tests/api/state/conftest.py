"""Servers whose slots can be saved: over the real model, over random weights where the text does not matter, and over
fakes for what these cannot be made to do."""

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live
from support.states.fake_slot_states import FakeStates

from llamad.engine.testing.fake import Fake

N_SLOTS = 2
N_CTX = 60_000  # of a fake slot: states of 15 MB


class FakedStates(Faked):
    """`states` are the fake's."""

    def __init__(self, *flags, n_ctx=N_CTX, **options):
        super().__init__(Fake(), "-np", str(N_SLOTS), *flags, **options)
        self.states = FakeStates(N_SLOTS, n_ctx)
        self.host.states = self.states  # type: ignore[assignment]

    def quiet(self):
        """Wait until nothing is on its way."""
        served = self.served
        self.until(lambda: len(served.state_actions) == 0 and served.room.n_bytes == 0)


@pytest.fixture
def started():
    """started(*flags) starts a server over fakes."""
    servers = []

    def start(*flags, **options):
        servers.append(FakedStates(*flags, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.quiet()
        server.__exit__()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "states"
    made.mkdir()
    return made


@pytest.fixture
def faked(started, folder):
    return started("--slots", "--metrics", "--slot-save-path", str(folder))


@pytest.fixture(scope="package")
def live_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("live-states")


FLAGS = ("-np", "2", "-c", "2048", "-n", "64", "--slots", "--metrics", "--slot-save-path")


@pytest.fixture(scope="package")
def live_states(live_folder):
    with Live(*FLAGS, str(live_folder)) as server:
        yield server


@pytest.fixture
def smol(live_states):
    yield live_states.client
    live_states.wait_idle()


@pytest.fixture(scope="package")
def tiny_states(live_folder, tiny):
    with Live(*FLAGS, str(live_folder), model=tiny) as server:
        yield server


@pytest.fixture
def random_model(tiny_states):
    yield tiny_states.client
    tiny_states.wait_idle()
