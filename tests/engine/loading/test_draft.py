"""Which models can be draft models, and how they are opened: by their own flags, else by those of the served model."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from support.models import bert_reference, bert_weights
from support.models.gguf_mutations import ARRAY, STRING, array, laid_out, take_apart, text
from support.models.tiny_kv_models import HYBRID_WINDOW, N_EMBD, write_model

from llamad._llama import lib
from llamad.engine import instance
from llamad.engine.loading.draft import draft_settings, load_draft, vet_draft
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.protocol.channel import Descriptors
from llamad.protocol.errors import LoadError

BOOL, U32, FLOAT, INT32 = 7, 4, 6, 5
FAMILY = "use a smaller model of the same family"


def settings(model, *flags):
    return parse(["-m", str(model), "-t", "1", "-c", "512", "-np", "2", *flags], {}).settings.model


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("draft") / "whole.gguf", "llama")


@pytest.fixture(scope="module")
def served(whole):
    model = load(settings(whole), 1, Loading())
    yield model
    model.close()


def opened(served, whole, draft, *flags):
    own = settings(whole, "-md", str(draft), *flags)
    vet_draft(own)
    return load_draft(own, served, Loading())


def refusal(served, whole, draft, *flags):
    with pytest.raises(LoadError) as caught:
        opened(served, whole, draft, *flags)
    return str(caught.value)


def flag(value):
    return BOOL, struct.pack("<?", value)


def number(value):
    return U32, struct.pack("<I", value)


def with_tokens(model, change):
    """The model with other texts of its tokens, and as many rows of the embedding."""
    key = next(key for key in model.keys if key.name == b"tokenizer.ggml.tokens")
    texts = change([item[8:] for item in key.elements()[1]])
    n = len(texts)
    tensors = [
        replace(one, dims=(N_EMBD, n)) if one.name == b"token_embd.weight" else one for one in model.tensors
    ]
    return laid_out(
        replace(model, tensors=tensors).with_keys(
            tokenizer__ggml__tokens=(ARRAY, array(STRING, b"".join(map(text, texts)), n)),
            tokenizer__ggml__scores=(ARRAY, array(FLOAT, bytes(4 * n), n)),
            tokenizer__ggml__token_type=(ARRAY, array(INT32, struct.pack("<i", 1) * n, n)),
            llama__vocab_size=number(n),
        )
    )


def more(n):
    return lambda texts: texts + [b"<more %d>" % i for i in range(n)]


def test_a_model_drafts_for_itself(served, whole):
    draft = opened(served, whole, whole)
    raw = lib.llamad_context_get(draft.context)
    assert (lib.llama_n_ctx(raw), lib.llama_n_seq_max(raw)) == (512, 2)
    assert (draft.n_ctx_max, draft.n_batch, draft.n_vocab) == (served.n_ctx_slot, served.n_batch, 259)
    draft.close()


def test_both_models_have_their_part_of_the_progress(whole, tmp_path, monkeypatch):
    """Tiny models load too fast to see more than where the second load begins."""
    larger = tmp_path / "larger.gguf"
    larger.write_bytes(Path(whole).read_bytes() * 2)  # llama.cpp ignores what follows the tensors
    seen: list[int] = []

    def watched(*args):
        seen.append(loading.permille)
        draft = load_draft(*args)
        seen.append(loading.permille)
        return draft

    monkeypatch.setattr(instance, "load_draft", watched)
    for flags in ((), ("-md", str(whole)), ("-md", str(larger))):
        loading = Loading()
        one = instance.Instance(settings(whole, *flags), Descriptors.create(), loading)
        one.close()
    assert seen == [1000, 1000, 500, 1000, 333, 1000]


@pytest.mark.parametrize(
    ("change", "n_vocab"),
    [
        (more(128), 259),
        (lambda texts: texts[:-3], 256),
        (lambda texts: [b"<other>", *texts[1:]], 259),
    ],
    ids=["128 more", "3 fewer", "another first token"],
)
def test_vocabularies_may_differ_a_little(served, whole, tmp_path, change, n_vocab):
    path = tmp_path / "draft.gguf"
    path.write_bytes(with_tokens(take_apart(whole), change).build())
    draft = opened(served, whole, path)
    assert draft.n_vocab == n_vocab
    draft.close()


def _other_text(texts):
    return [*texts[:100], b"other", *texts[101:]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: with_tokens(model, more(129)), "it has 388 tokens, the served model has 259"),
        (
            lambda model: with_tokens(model, _other_text),
            "its token 100 is 'other', that of the served model is '<0x61>'",
        ),
        (
            lambda model: model.with_keys(tokenizer__ggml__add_bos_token=flag(False)),
            "only the served model adds the BOS token to prompts",
        ),
        (
            lambda model: model.with_keys(tokenizer__ggml__add_eos_token=flag(True)),
            "only it adds the EOS token to prompts",
        ),
        (
            lambda model: model.with_keys(tokenizer__ggml__bos_token_id=number(7)),
            "its BOS token is 7, that of the served model is 1",
        ),
    ],
    ids=["size", "text", "add BOS", "add EOS", "BOS"],
)
def test_another_vocabulary_is_refused_with_the_difference(served, whole, tmp_path, change, reason):
    path = tmp_path / "draft.gguf"
    path.write_bytes(change(take_apart(whole)).build())
    assert refusal(served, whole, path) == f"-md {path}: its vocabulary does not fit: {reason}; {FAMILY}"


def test_another_type_of_tokenizer_is_refused(served, whole, tmp_path):
    path = bert_reference.cached_gguf(bert_weights.reranker())
    assert "it has another type of tokenizer" in refusal(served, whole, path)


@pytest.mark.parametrize("kind", ["mamba", "jamba", HYBRID_WINDOW])
def test_memory_that_cannot_go_back_is_refused(served, whole, tmp_path, kind):
    path = write_model(tmp_path / "draft.gguf", kind)
    assert refusal(served, whole, path).startswith(
        f"-md {path}: it is a recurrent or hybrid model, whose memory "
    )


@pytest.mark.parametrize("arch", ["eagle3", "dflash"])
def test_draft_heads_are_refused(served, whole, tmp_path, arch):
    path = tmp_path / "draft.gguf"
    path.write_bytes(take_apart(whole).with_keys(general__architecture=(STRING, text(arch.encode()))).build())
    assert refusal(served, whole, path) == (
        f"-md {path}: it is a draft head (MTP, EAGLE-3, DFlash), which llamad does not use yet; use a whole model"
    )


def test_a_file_of_heads_only_is_refused(served, whole, tmp_path):
    model = take_apart(whole)
    tensors = [replace(one, name=one.name.replace(b"blk.0.", b"blk.1.nextn.")) for one in model.tensors]
    path = tmp_path / "draft.gguf"
    path.write_bytes(replace(model, tensors=tensors).build())
    assert "it is a draft head" in refusal(served, whole, path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("-devd", "GPU77"),
            "the draft model: --device GPU77: there is no such device; this machine has CPU",
        ),
        (("-otd", "ffn=GPU77"), "the draft model: --override-tensor ffn=GPU77: there is no such buffer"),
        (("-Cd", "0x" + "8" + "0" * 127), "name none of the CPUs that this process may use"),
    ],
)
def test_flags_that_cannot_work_are_refused(served, whole, flags, words):
    assert words in refusal(served, whole, whole, *flags)


def test_a_window_is_kept_whole(tmp_path):
    """Its tokens are removed anywhere, so a sliding window would not do."""
    path = write_model(tmp_path / "window.gguf", "gemma3")
    served = load(settings(path), 1, Loading())
    draft = opened(served, path, path)
    assert draft_settings(settings(path, "-md", path), 512).swa_full
    assert not settings(path).swa_full
    draft.close()
    served.close()


def test_what_its_flags_do_not_set_is_as_for_the_served_model():
    own = draft_settings(
        settings("m", "-md", "d", "-tb", "3", "-C", "3", "--prio", "1", "-ngl", "5", "-ctk", "f32"), 64
    )
    assert (own.model, own.n_ctx, own.n_threads, own.n_threads_batch) == ("d", 64, 1, 3)
    assert (own.cpu_mask, own.prio, own.n_gpu_layers, own.cache_type_k) == ((0, 1), 1, -1, "f16")


def test_its_own_flags():
    flags = "-td 5 -tbd 6 -Cd 1 -Crbd 1-1 --prio-draft 0 --poll-batch-draft 7 -ngld 2 -devd none -ctvd f32 -ncmoed 4"
    own = draft_settings(
        settings("m", "-md", "d", "-C", "3", "--prio", "1", "-ts", "1,1", *flags.split()), 64
    )
    assert (own.n_threads, own.n_threads_batch, own.prio, own.poll_batch) == (5, 6, 0, 7)
    assert (own.cpu_mask, own.cpu_range_batch) == ((0,), (1,))
    assert (own.n_gpu_layers, own.devices, own.tensor_split) == (2, ("none",), ())
    assert (own.cache_type_k, own.cache_type_v, own.n_cpu_moe) == ("f16", "f32", 4)


@pytest.mark.parametrize("flags", [(), ("-md", "d", "--llama-api-only"), ("-md", "d", "-gan", "2")])
def test_without_a_draft_model_there_are_no_settings_of_it(flags):
    assert draft_settings(settings("m", *flags), 64) is None


@pytest.mark.skipif(not lib.llamad_has_openmp(), reason="each model has threads of its own")
def test_threads_that_both_models_have_cannot_have_two_priorities(served, whole):
    draft = opened(served, whole, whole, "--prio-draft", "-1")
    assert draft.warnings == ["--prio-draft has no effect: OpenMP's threads compute both models"]
    assert draft.pools is None
    draft.close()
