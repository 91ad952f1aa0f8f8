"""The binding over the real llama.cpp: what it throws is caught, what it says of the model is right."""

import os

import pytest
from support.live_daemon import model_path

from llamad._llama import ffi, lib
from llamad.engine.loading import memory
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.engine.loading.thread_pools import restored
from llamad.flags.parse import parse
from llamad.protocol.errors import LoadError
from llamad.tokenizer.vocab import Vocab


@pytest.fixture(scope="module")
def model():
    settings = parse(["-m", model_path(), "-c", "512"], {}).settings.model
    model = load(settings, 1, Loading())
    yield model
    model.close()


def test_the_model_describes_itself(model):
    assert model.info.n_vocab == 49152
    assert model.info.n_ctx_train == 8192
    assert model.n_ctx == model.n_ctx_slot == 512
    assert "<|im_start|>" in model.info.chat_template


def test_an_exception_in_llama_cpp_becomes_an_empty_answer(model):
    """llama.cpp throws std::out_of_range for a token beyond its vocabulary; Vocab is told of more than there are."""
    vocab = lib.llama_model_get_vocab(model.handle)
    table = int(ffi.cast("uintptr_t", lib.llamad_llama_table()))
    greedy = Vocab(table, int(ffi.cast("uintptr_t", vocab)), model.info.n_vocab + 100)
    assert greedy.piece(model.info.n_vocab + 50, True) == b""
    assert model.vocab.piece(260, True) == greedy.piece(260, True) != b""


def test_tokens_go_to_text_and_back(model):
    tokens = model.vocab.tokenize("Grüße, Welt 🦙".encode(), False, True)
    assert model.vocab.detokenize(tokens, True).decode() == "Grüße, Welt 🦙"
    assert (
        b"".join(model.vocab.piece(t, True) for t in memoryview(tokens).cast("i")).decode()
        == "Grüße, Welt 🦙"
    )


def test_ids_outside_the_vocabulary_never_reach_llama_cpp(model):
    for bad in (-1, 49152, 2**31 - 1):
        with pytest.raises(ValueError, match="outside the vocabulary"):
            model.vocab.piece(bad, True)
        with pytest.raises(ValueError, match="outside the vocabulary"):
            model.vocab.detokenize((bad & 0xFFFFFFFF).to_bytes(4, "little"), True)


def test_end_of_generation_tokens(model):
    assert model.info.eos in model.vocab.eog_tokens()
    assert model.vocab.is_eog(model.info.eos)
    assert not model.vocab.is_eog(260)
    assert not model.vocab.is_eog(-1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-dev", "NoSuchGPU"], "NoSuchGPU"),
        (["-np", "100", "-b", "50"], "--batch-size 50"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(flags, words):
    settings = parse(["-m", model_path(), "-c", "2048", *flags], {}).settings.model
    with pytest.raises(LoadError, match=words):
        load(settings, 1, Loading())


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model.bin"
    for content, words in ((b"", "not a GGUF"), (b"GGUF\x03\0\0\0" + b"\xff" * 64, "claims")):
        path.write_bytes(content)
        with pytest.raises(LoadError, match=words):
            load(parse(["-m", str(path)], {}).settings.model, 1, Loading())
    with pytest.raises(LoadError, match="No such file"):
        load(parse(["-m", str(tmp_path / "none")], {}).settings.model, 1, Loading())


def test_metadata_can_be_overridden():
    flags = ["-c", "512", "--override-kv", "tokenizer.ggml.add_bos_token=bool:true"]
    model = load(parse(["-m", model_path(), *flags], {}).settings.model, 1, Loading())
    assert model.info.add_bos is True
    assert memoryview(model.vocab.tokenize(b"x", True, True)).cast("i")[0] == model.info.bos
    model.close()


def test_the_progress_of_a_load_begins_when_the_vocabulary_is_checked(monkeypatch):
    loading = Loading()
    assert loading.permille == -1
    seen: list[int] = []

    def has_gpu() -> bool:
        seen.append(loading.permille)
        return False

    monkeypatch.setattr(memory, "has_gpu", has_gpu)
    load(parse(["-m", model_path(), "-c", "512"], {}).settings.model, 1, loading).close()
    assert seen[0] == 0  # the front can read it while the devices are opened
    assert loading.permille == 1000
    broken = Loading()
    with pytest.raises(LoadError, match="No such file"):
        load(parse(["-m", "/no/such/model.gguf"], {}).settings.model, 1, broken)
    assert broken.permille == -1


@pytest.mark.parametrize(
    ("free", "flags", "n"),
    [
        (1 << 40, [], 1024),
        (1 << 40, ["-b", "800"], 800),
        (2 << 30, [], 512),
        (1 << 40, ["--no-kv-offload"], 512),
        (1 << 40, ["-ub", "256"], 256),
        (1 << 40, ["-ub", "0", "-b", "600"], 600),
        (1 << 40, ["--device", "none"], 512),
    ],
)
def test_a_gpu_computes_more_at_once_where_it_has_memory_to_spare(monkeypatch, free, flags, n):
    monkeypatch.setattr(memory, "has_gpu", lambda: True)
    monkeypatch.setattr(memory, "gpus", lambda settings: {"first": 1 << 40, "second": free})
    model = load(parse(["-m", model_path(), "-c", "4096", *flags], {}).settings.model, 1, Loading())
    try:
        assert model.n_ubatch == n
    finally:
        model.close()


def test_a_context_that_is_made_again_keeps_its_thread_pools(tiny):
    """llama.cpp forgets them with the context."""
    cpu = min(os.sched_getaffinity(0))
    flags = ["-c", "256", "-t", "2", "--cpu-range", f"{cpu}-{cpu}", "--embedding", "--pooling", "mean"]
    model = load(parse(["-m", tiny, *flags], {}).settings.model, 2, Loading())
    assert model.vectors is not None
    rows, bound = [], []
    with restored():
        before = os.sched_getaffinity(0)
        for _ in range(2):
            memory_ = bytearray((3).to_bytes(4, "little") + bytes(4 * model.vectors.info.n_out))
            assert model.vectors.compute(memoryview(memory_), [1]) == 0
            rows.append(bytes(memory_))
            bound.append(os.sched_getaffinity(0))
            os.sched_setaffinity(0, before)
            assert lib.llamad_context_rebuild(model.vectors.context) == 0
    assert bound == [{cpu}, {cpu}]
    assert rows[0] == rows[1]
    model.close()
