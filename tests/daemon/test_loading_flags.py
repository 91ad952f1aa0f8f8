"""The flags that change how llama.cpp loads a model, on the real program: its own log says what it did."""

import pytest
from support.live_daemon import Live

from llamad.engine.loading.model import _context_params
from llamad.flags.parse import parse


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        (["--load-mode", "none"], "none"),
        (["--load-mode", "mmap"], "mmap"),
        (["--load-mode", "dio"], "dio"),
        (["--load-mode", "mmap", "--no-mmap"], "mmap"),
        (["--load-mode", "auto", "--no-mmap"], "none"),
    ],
)
def test_how_the_file_is_read(tiny, flags, mode):
    with Live("-c", "256", "-v", *flags, model=tiny) as server:
        assert server.wait_line(r"load_tensors: .*\(load_mode = ([\w+]+)\)")[1] == mode
        assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2


def test_without_repacking_host_buffers_and_offload(tiny):
    """llama.cpp says which tensors it could not repack; without repacking it says nothing."""
    for flags, is_tried in (
        ([], True),
        (["--no-repack", "--no-host", "--no-op-offload", "-lzm", "on"], False),
    ):
        with Live("-c", "256", "-v", *flags, model=tiny) as server:
            assert any("CPU_REPACK" in line for line in server.lines) is is_tried
            assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2


def test_offload_is_the_contexts():
    for flags, is_on in (([], True), (["--no-op-offload"], False)):
        assert _context_params(parse(["-m", "x", *flags], {}).settings, 1).op_offload is is_on
