"""What a server with two models says of them. There is no flag for a second one: the test adds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from support.fake_daemon import Faked

from llamad.api.service.served_model import ServedModel
from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse
from llamad.models.host import Host

OTHER = 'an "other" one'


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    with Faked(Fake(), "--metrics") as server:
        host = Host(parse(["-m", "other.gguf", "-a", OTHER], {}).settings.model)
        server.daemon.models._models.append(ServedModel(server.daemon.service, host))
        yield server


def test_metrics_have_the_label_of_their_model(server: Faked) -> None:
    lines = server.client.get("/metrics").body.decode().splitlines()
    assert 'llamad:engine_up{model="fake.gguf"} 1' in lines
    assert 'llamad:engine_up{model="an \\"other\\" one"} 0' in lines
    assert 'llamad:queue_seconds_bucket{model="fake.gguf",le="+Inf"} 0' in lines
    assert 'llamacpp:requests_processing{model="fake.gguf"} 0' in lines
    assert not any(line.startswith("llamacpp:") and "other" in line for line in lines)  # it has no engine
    assert "llamad:reloads_total 0" in lines
    heads = Counter(line for line in lines if line.startswith("# "))
    assert max(heads.values()) == 1


def test_both_are_listed(server: Faked) -> None:
    listed = server.client.get("/v1/models").json
    assert [one["id"] for one in listed["data"]] == ["fake.gguf", OTHER]
    assert [one["name"] for one in listed["models"]] == ["fake.gguf", OTHER]
    assert server.client.get("/v1/models/fake.gguf").json["status"] == {"value": "loaded"}
    assert server.client.get("/v1/models/an%20%22other%22%20one").json["status"] == {"value": "unloaded"}
    assert server.client.get("/v1/models/none").status == 404


def test_without_a_second_model_there_is_no_label() -> None:
    with Faked(Fake(), "--metrics") as server:
        assert "model=" not in server.client.get("/metrics").body.decode()
