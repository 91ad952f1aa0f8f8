"""Where tensors live: what the flags say, and when tokens are looked up on a GPU. The processor stands for one here."""

import re

import pytest
from support.live_daemon import Live, model_path

from llamad._llama import ffi, lib
from llamad.engine.loading import memory, placement
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.protocol.errors import LoadError

GIB = 1 << 30


def settings(*flags: str):
    return parse(["-m", model_path(), "-c", "512", *flags], {}).settings.model


@pytest.fixture(autouse=True, scope="module")
def backends():
    assert lib.llamad_backends_open() == 0


def shape():
    gguf_shape = ffi.new("llamad_gguf_shape *")
    assert (
        lib.llamad_gguf_shape_of(model_path().encode(), lib.ggml_backend_dev_by_name(b"CPU"), gguf_shape) == 0
    )
    return gguf_shape


def named(placing) -> list[str]:
    patterns = []
    while placing.pointer != ffi.NULL and placing.pointer[len(patterns)].pattern != ffi.NULL:
        patterns.append(ffi.string(placing.pointer[len(patterns)].pattern).decode())
    return patterns


def where(flags: list[str], tensor: str) -> str | None:
    rows = placement.patterns(settings(*flags))
    return next((buffer for pattern, buffer in rows if re.search(pattern, tensor)), None)


def test_the_flags_place_experts_and_feed_forward_weights():
    assert where(["-cmoe"], "blk.40.ffn_gate_exps.weight") == "CPU"
    assert where(["-cmoe"], "blk.40.ffn_gate.weight") is None
    assert where(["-ncmoe", "2"], "blk.1.ffn_up_exps.weight") == "CPU"
    assert where(["-ncmoe", "2"], "blk.1.ffn_gate_up_chexps.weight") == "CPU"
    assert where(["-ncmoe", "2"], "blk.2.ffn_up_exps.weight") is None
    assert where(["-ncmoe", "2"], "blk.11.ffn_up_exps.weight") is None
    assert where(["-ncffn", "1"], "blk.0.ffn_down.weight") == "CPU"
    assert where(["-ncffn", "1"], "blk.0.ffn_down_exps.weight") is None
    assert where(["-ot", "ffn_up=CUDA1", "-cmoe"], "blk.0.ffn_up_exps.weight") == "CUDA1"


def test_a_model_whose_tensors_are_placed_writes_the_same():
    texts = []
    for flags in ([], ["-ot", "token_embd=CPU,blk\\.1\\.=CPU", "-ncffn", "3"]):
        with Live("-c", "512", *flags) as live:
            texts.append(
                live.client.complete("The capital of France is", n_predict=8, temperature=0)["content"]
            )
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("token_embd=CUDA7", "there is no such buffer; this machine has CPU"),
        ("to(ken=CPU", "could not be loaded"),
    ],
)
def test_a_placement_that_cannot_be_is_told(text, said):
    with pytest.raises(LoadError, match=said):
        load(settings("-ot", text), 1, Loading())


def test_the_shape_of_a_file_is_the_models():
    found, model = shape(), load(settings(), 1, Loading())
    try:
        handle = model.handle
        assert found.n_layer == lib.llama_model_n_layer(handle)
        assert found.n_embd == lib.llama_model_n_embd(handle)
        assert found.n_head == lib.llama_model_n_head(handle)
        assert found.n_head_kv == lib.llama_model_n_head_kv(handle)
        assert found.n_ctx_train == model.info.n_ctx_train
        assert found.n_vocab == model.info.n_vocab
        assert found.bytes == model.info.size
        assert found.device_looks_up == 1
    finally:
        model.close()


def test_the_shape_of_no_model_is_not_told(tmp_path):
    device, gguf_shape = lib.ggml_backend_dev_by_name(b"CPU"), ffi.new("llamad_gguf_shape *")
    for data in (b"", b"GGUF", b"GGUF\x03\0\0\0" + bytes(16), b"x" * 100):
        (tmp_path / "a.gguf").write_bytes(data)
        assert lib.llamad_gguf_shape_of(str(tmp_path / "a.gguf").encode(), device, gguf_shape) == -1
    assert lib.llamad_gguf_shape_of(str(tmp_path / "b.gguf").encode(), device, gguf_shape) == -1


@pytest.mark.parametrize(
    ("flags", "free", "does"),
    [
        ([], 3 * GIB, True),
        (["-ngl", "99"], 3 * GIB, True),
        (["-ngl", "31"], 3 * GIB, True),
        (["-ngl", "30"], 3 * GIB, False),  # the output would be computed elsewhere
        ([], 2 * GIB, False),
        (["-c", "1048576"], 3 * GIB, False),
        (["-c", "1048576"], 30 * GIB, True),
    ],
)
def test_tokens_are_looked_up_on_a_gpu_that_has_all_of_the_model_and_memory_to_spare(flags, free, does):
    assert placement.fits(settings(*flags), shape(), free) is does


@pytest.mark.parametrize(
    ("flags", "gpus", "does"),
    [
        ([], {"CPU": 1 << 40}, True),
        ([], {"CPU": 1 << 20}, False),
        ([], {}, False),
        ([], {"CPU": 1 << 40, "other": 1 << 40}, False),
        (["-ngl", "0"], {"CPU": 1 << 40}, False),
        (["--device", "none"], {"CPU": 1 << 40}, False),
        (["--llama-api-only"], {"CPU": 1 << 40}, False),
    ],
)
def test_the_table_of_tokens_goes_to_the_only_gpu(monkeypatch, flags, gpus, does):
    monkeypatch.setattr(memory, "gpus", lambda settings: gpus)
    assert named(placement.placing(settings(*flags))) == [placement.INPUTS] * does


@pytest.mark.parametrize("flag", [["-cmoe"], ["-ncmoe", "1"], ["-ncffn", "1"]])
def test_the_processor_counts_as_computing_where_it_keeps_whole_layers_weights(monkeypatch, flag):
    monkeypatch.setattr(memory, "has_gpu", lambda: True)
    model = load(settings(), 1, Loading())
    try:
        assert memory.computes(settings(), model.handle)
        assert not memory.computes(settings(*flag), model.handle)
    finally:
        model.close()


def test_what_the_flags_say_of_the_table_comes_first(monkeypatch):
    monkeypatch.setattr(memory, "gpus", lambda settings: {"CPU": 1 << 40})
    assert named(placement.placing(settings("-ot", "token_embd=CPU"))) == ["token_embd", placement.INPUTS]
    load(settings("-ot", "token_embd=CPU"), 1, Loading()).close()
