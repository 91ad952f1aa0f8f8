"""Servers that all tests share, one of each for a worker: the real program over a tiny model or, for tests with the
mark `real_model`, over the default one. Each test leaves them idle, with the engine that they had."""

import pytest

from support.live_daemon import Live, model_path
from support.models.tiny_model import write_tiny

FLAGS = ("-np", "4", "-c", "8192", "--slots", "--metrics", "--props", "--alias", "smol")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The path of a model whose text does not matter: the default one's tokenizer and template, random weights."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", model_path())


@pytest.fixture(scope="session")
def tiny_live(tiny):
    with Live(*FLAGS, model=tiny) as server:
        yield server


@pytest.fixture(scope="session")
def real_live():
    with Live(*FLAGS) as server:
        yield server


@pytest.fixture
def live(request):
    is_real = request.node.get_closest_marker("real_model") is not None
    server = request.getfixturevalue("real_live" if is_real else "tiny_live")
    n_lines = len(server.lines)
    yield server
    server.wait_idle()
    ended = [line for line in server.lines[n_lines:] if "the model's engine ended" in line]
    assert not ended, "the shared server lost its engine:\n" + "\n".join(server.lines[-100:])


@pytest.fixture
def client(live):
    return live.client


@pytest.fixture(scope="session")
def tiny_client(tiny):
    """A server over that model, for long texts."""
    with Live("-np", "1", "-c", "2048", model=tiny) as server:
        yield server.client


THINKER = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}\n{% endfor %}assistant: "
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% if reasoning_effort is defined %}effort {{ reasoning_effort }}{% endif %}"
)


@pytest.fixture(scope="session")
def thinker(tiny):
    """A server whose template knows thoughts; a grammar says which the model has."""
    with Live("-np", "1", "-c", "2048", "--chat-template", THINKER, model=tiny) as server:
        yield server.client
