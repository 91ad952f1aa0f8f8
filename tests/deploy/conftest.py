"""For the tests of deploy/: llamads behind a gateway, and the gateways; tests of one that is not there are skipped."""

import pytest
from support.live_daemon import Live

from bench.gateways.clients import KEY, MODEL, PATH
from bench.gateways.programs import GATEWAYS, find

FLAGS = ("-np", "8", "-c", "8192", "--alias", MODEL, "--api-key", "k")


class Backend(Live):
    """A llamad behind the gateway."""

    def __init__(self, *flags: str, model: str, proxy: str = "127.0.0.1") -> None:
        super().__init__(*FLAGS, "--trusted-proxies", proxy, *flags, model=model)

    @property
    def port(self) -> int:
        return self.client.port

    def n_served(self) -> int:
        return sum(f'"POST {PATH}" 200' in line for line in self.lines)

    def has_served(self, request_id: str) -> bool:
        return any(f' {request_id} "POST ' in line for line in self.lines)

    def n_tasks(self) -> int:
        return self.client.get("/v1/loads", headers=KEY).json["loads"][0]["num_total_reqs"]


@pytest.fixture(scope="module")
def backends(tiny):
    with Backend(model=tiny) as one, Backend(model=tiny) as two:
        yield [one, two]


@pytest.fixture
def backend(tiny):
    """Starts one more; ended with the test."""
    started: list[Backend] = []

    def start(*flags: str, **options: str) -> Backend:
        started.append(Backend(*flags, model=tiny, **options))
        return started[-1]

    yield start
    for one in started:
        one.__exit__()


@pytest.fixture(params=GATEWAYS)
def start(request, tmp_path):
    """Starts the gateway in front of these backends."""
    if find(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return lambda backends: GATEWAYS[request.param]([one.port for one in backends], tmp_path)


@pytest.fixture(scope="module", params=GATEWAYS)
def gateway(request, tmp_path_factory, backends):
    """A gateway in front of `backends` that all tests of a module share."""
    if find(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    with GATEWAYS[request.param]([one.port for one in backends], folder) as gateway:
        yield gateway
