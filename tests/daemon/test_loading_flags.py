"""The flags that change how llama.cpp loads a model, on the real program: its own log says what it did."""

import pytest
from support.live_daemon import Live
from support.models.tiny_adapters import write_lora

from llamad.engine.loading.model import context_params, load
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.protocol.errors import LoadError


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


def test_adapters_imply_that_the_file_is_read(tiny, tmp_path):
    """As llama.cpp's documents say; whoever asks for a mapping gets it."""
    adapter = write_lora(tmp_path / "adapter.gguf", tiny, seed=1)
    for flags, is_mapped in (
        (["--lora", adapter], False),
        (["--lora-scaled", f"{adapter}:0.5"], False),
        (["--lora", adapter, "--mmap"], True),
        ([], True),
    ):
        with Live("-c", "256", "-v", *flags, model=tiny) as server:
            mode = server.wait_line(r"load_tensors: .*\(load_mode = ([\w+]+)\)")[1]
            assert (mode != "none") is is_mapped, (flags, mode)
            assert server.client.get("/props").json["settings"]["mmap"] is is_mapped
            assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2


def test_without_repacking_host_buffers_and_offload(tiny):
    """llama.cpp says which tensors it could not repack; without repacking it says nothing."""
    for flags, is_tried in (
        ([], True),
        (["--no-repack", "--no-host", "--no-op-offload", "-lzm", "on"], False),
    ):
        with Live("-c", "256", "-v", *flags, model=tiny) as server:
            # CPU_REPACK, or AMX on a CPU that has it.
            assert any("preferred buffer type" in line for line in server.lines) is is_tried
            assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2


def test_offload_is_the_contexts():
    for flags, is_on in (([], True), (["--no-op-offload"], False)):
        assert context_params(parse(["-m", "x", *flags], {}).settings.model, 1).op_offload is is_on


@pytest.mark.parametrize(
    ("flags", "n_ctx", "n_slot", "n_warnings"),
    [
        ("-np 4 --kv-unified --kv-unified-per-slot 256", 1024, 256, 0),
        ("-np 4 --kv-unified --kv-unified-per-slot 100 -c 512", 512, 100, 0),
        ("-np 2 --kv-unified-per-slot 100 -c 512", 512, 100, 0),
        ("-np 2 --kv-unified-per-slot 1000 -c 512", 512, 256, 1),
    ],
)
def test_a_slot_can_have_a_limit_of_its_own(tiny, flags, n_ctx, n_slot, n_warnings):
    model = load(parse(["-m", tiny, *flags.split()], {}).settings.model, 1, Loading(), is_survey=True)
    assert (model.n_ctx, model.n_ctx_slot, len(model.warnings)) == (n_ctx, n_slot, n_warnings)
    model.close()


def test_a_limit_too_small_for_a_slot_is_refused(tiny):
    with pytest.raises(LoadError, match="--kv-unified-per-slot 5: a slot needs at least 8"):
        load(parse(["-m", tiny, "--kv-unified-per-slot", "5", "-c", "64"], {}).settings.model, 1, Loading())


def test_a_prompt_beyond_the_slots_limit_is_refused(tiny):
    """Though the cache has room for it."""
    flags = "-np 2 -c 1024 --kv-unified --kv-unified-per-slot 64 --no-context-shift".split()
    with Live(*flags, model=tiny) as server:
        assert server.client.get("/props").json["default_generation_settings"]["n_ctx"] == 64
        answer = server.client.post("/completion", {"prompt": "one two " * 100, "n_predict": 1})
        assert (answer.status, answer.error["n_ctx"]) == (400, 64)
