"""What is wrong with a GGUF is said in a sentence that names it, before llama.cpp sees the file: on about half of these
it would abort."""

import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.gguf_loading import LOADED, REFUSED, Loader
from support.live_daemon import model_path
from support.models.gguf_keys import Writer
from support.models.gguf_mutations import ARRAY, STRING, Key, array, laid_out, take_apart, text, with_bpe
from support.models.tiny_kv_models import KINDS, write_model

from llamad.engine.loading.gguf_rules import check_gguf
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.protocol.errors import LoadError

U32, F32 = 4, 6


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return take_apart(write_model(tmp_path_factory.mktemp("gguf") / "llama.gguf", "llama"))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return take_apart(write_model(tmp_path_factory.mktemp("gguf") / "qwen.gguf", "qwen2vl"))


def u32(value):
    return U32, struct.pack("<I", value)


def f32(value):
    return F32, struct.pack("<f", value)


def strings(*values):
    return ARRAY, array(STRING, b"".join(map(text, values)), len(values))


def refusal(path, raw, *flags):
    """Why it is not loaded, without its name."""
    path.write_bytes(raw)
    with pytest.raises(LoadError) as caught:
        check_gguf(parse(["-m", str(path), *flags], {}).settings.model, lambda: False)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path)).strip()


def accepted(path, raw, *flags, has_gpu=False):
    path.write_bytes(raw)
    check_gguf(parse(["-m", str(path), *flags], {}).settings.model, lambda: has_gpu)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_accepted(kind, tmp_path):
    whole = take_apart(write_model(tmp_path / "x.gguf", kind))
    assert whole.build() == (tmp_path / "x.gguf").read_bytes()
    assert accepted(tmp_path / "x.gguf", whole.build())
    assert accepted(tmp_path / "x.gguf", with_bpe(whole).build())


@pytest.mark.parametrize("path", sorted(Path(model_path()).parent.glob("*.gguf")), ids=lambda path: path.name)
def test_the_models_of_the_tests_are_accepted(path):
    check_gguf(parse(["-m", str(path)], {}).settings.model, lambda: False)


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (10, "first 24 bytes"),
        (26, "the name of key 0"),
        (2000, "tokenizer.ggml.tokens with 259 strings, which do not fit"),
        (-1, "cut short: its tensors end at"),
    ],
)
def test_a_file_that_is_cut_short(n, words, llama, tmp_path):
    assert words in refusal(tmp_path / "x.gguf", llama.build()[:n])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 1}, "GGUF version 1"),
        ({"version": 0x03000000}, "big-endian"),
        ({"n_keys": 2**63}, "claims 9,223,372,036,854,775,808 keys"),
        ({"n_tensors": 2**40}, "claims"),
        ({"n_keys": 1000}, "the name of key"),
    ],
)
def test_counts_and_versions(change, words, llama, tmp_path):
    assert words in refusal(tmp_path / "x.gguf", replace(llama, **change).build())


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (Key(b"llama.block_count", *u32(2)), "llama.block_count twice"),
        (Key(b"", *u32(2)), "0 bytes"),
        (Key(b"\xff", *u32(2)), "not UTF-8"),
        (Key(b"x\ny", *u32(2)), "control characters"),
        (Key(b"x", 13, b""), "the key x of type 13"),
        (Key(b"x", ARRAY, array(ARRAY, b"", 1)), "the key x, an array of type 9"),
        (Key(b"x", ARRAY, array(U32, b"", 2**62)), "in the middle of x"),
        (Key(b"x", ARRAY, array(STRING, b"", 2**62)), "the key x with 4,611,686,018,427,387,904 strings"),
        (Key(b"x", STRING, struct.pack("<Q", 2**63)), "in the middle of x"),
        (Key(b"general.alignment", *u32(8)), "general.alignment of 8"),
        (Key(b"general.alignment", *u32(48)), "general.alignment of 48"),
        (Key(b"general.alignment", *f32(32)), "general.alignment that is not a uint32"),
    ],
)
def test_keys_that_cannot_be(key, words, llama, tmp_path):
    assert words in refusal(tmp_path / "x.gguf", replace(llama, keys=[*llama.keys, key]).build())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dims": (64, 0)}, "attn_q.weight of shape (64, 0)"),
        ({"dims": (2**32, 2**32)}, "attn_q.weight of shape"),
        ({"dims": (2**40,)}, "attn_q.weight needs"),
        ({"dims": ()}, "attn_q.weight with 0 dimensions"),
        ({"dims": (1, 1, 1, 1, 1)}, "attn_q.weight with 5 dimensions"),
        ({"kind": 31}, "attn_q.weight of type 31"),
        ({"kind": 2**31 + 1}, "attn_q.weight of type 2147483649"),
        ({"offset": 2**63}, "attn_q.weight at 9,223,372,036,854,775,808"),
        ({"name": b"n" * 64}, "64 bytes"),
        ({"name": b"output_norm.weight"}, "output_norm.weight twice"),
    ],
)
def test_tensors_that_cannot_be(change, words, llama, tmp_path):
    at = next(i for i, tensor in enumerate(llama.tensors) if tensor.name == b"blk.0.attn_q.weight")
    tensors = [*llama.tensors]
    tensors[at] = replace(tensors[at], **change)
    assert words in refusal(tmp_path / "x.gguf", replace(llama, tensors=tensors).build())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"general__architecture": None}, "general.architecture"),
        ({"llama__block_count": u32(0)}, "llama.block_count of 0: 1 to 512"),
        ({"llama__block_count": u32(513)}, "llama.block_count of 513"),
        ({"llama__nextn_predict_layers": u32(3)}, "llama.nextn_predict_layers of 3"),
        ({"llama__context_length": u32(0)}, "llama.context_length of 0"),
        ({"llama__embedding_length": u32(0)}, "llama.embedding_length of 0"),
        ({"llama__attention__head_count": u32(3), "llama__attention__head_count_kv": u32(2)}, "no multiple"),
        ({"llama__attention__key_length": u32(16)}, "key_length 16 and value_length 32"),
        ({"llama__rope__dimension_count": u32(7)}, "llama.rope.dimension_count of 7"),
        ({"llama__rope__dimension_count": u32(64)}, "llama.rope.dimension_count of 64"),
        ({"llama__rope__scaling__type": (STRING, text(b"magic"))}, "llama.rope.scaling.type b'magic'"),
        ({"llama__attention__layer_norm_rms_epsilon": f32(-1)}, "layer_norm_rms_epsilon of -1.0"),
        ({"llama__attention__layer_norm_rms_epsilon": f32(float("nan"))}, "layer_norm_rms_epsilon of nan"),
        ({"llama__expert_count": u32(8)}, "llama.expert_used_count of 0: 1 to 8"),
        ({"llama__expert_used_count": u32(2)}, "llama.expert_used_count of 2: 0 to 0"),
        ({"llama__expert_count": u32(4096)}, "llama.expert_count of 4096"),
        ({"tokenizer__ggml__model": None}, "no tokenizer.ggml.model"),
        ({"tokenizer__ggml__model": (STRING, text(b"no_vocab"))}, "needs a model with a vocabulary"),
        ({"tokenizer__ggml__model": (STRING, text(b"bert"))}, "byte tokens in tokenizer.ggml.token_type"),
        ({"tokenizer__ggml__tokens": None}, "no tokenizer.ggml.tokens"),
        ({"tokenizer__ggml__tokens": u32(1)}, "tokenizer.ggml.tokens of the wrong type"),
        ({"tokenizer__ggml__tokens": strings()}, "tokenizer.ggml.tokens with 0"),
        ({"tokenizer__ggml__tokens": strings(b"a", b"b", b"a")}, "tokenizer.ggml.tokens twice: 2 has"),
        ({"tokenizer__ggml__tokens": strings(b"[EMPTY_1]", b"")}, "tokenizer.ggml.tokens twice: 1 has"),
        ({"tokenizer__ggml__tokens": strings(b"a", b"b", b"b\0c")}, "tokenizer.ggml.tokens twice: 2 has"),
        ({"tokenizer__ggml__tokens": strings(b"[EMPTY_1]", b"\0a")}, "tokenizer.ggml.tokens twice: 1 has"),
        ({"tokenizer__ggml__tokens": strings(b"", b"")}, "tokens of up to 0 bytes"),
        (
            {"tokenizer__ggml__scores": (ARRAY, array(F32, bytes(8), 2))},
            "tokenizer.ggml.scores with 2 elements",
        ),
        ({"tokenizer__ggml__token_type": (ARRAY, array(5, bytes(8), 2))}, "token_type with 2 elements"),
        ({"tokenizer__ggml__merges": strings(b"a b", b"ab")}, "tokenizer.ggml.merges where element 1"),
        (
            {"tokenizer__chat_template": (STRING, text(b"ab\xff"))},
            "chat_template that is not UTF-8, from byte 2",
        ),
        ({"tokenizer__chat_template": (STRING, text(b"a" * (5 << 20)))}, "chat_template of 5,242,880 bytes"),
    ],
)
def test_values_that_llama_cpp_aborts_on(changed, words, llama, tmp_path):
    assert words in refusal(tmp_path / "x.gguf", llama.with_keys(**changed).build())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"qwen2vl__attention__head_count": u32(4)}, "qwen2vl.attention.head_count 4 with heads of 32"),
        (
            {"qwen2vl__rope__dimension_sections": (ARRAY, array(5, bytes(16), 4))},
            "qwen2vl.rope.dimension_sections of (0, 0, 0, 0)",
        ),
        (
            {"qwen2vl__rope__dimension_sections": (ARRAY, array(5, struct.pack("<4i", 8, 30, 4, 0), 4))},
            "qwen2vl.rope.dimension_sections of (8, 30, 4, 0)",
        ),
    ],
)
def test_heads_that_do_not_fill_the_embedding(changed, words, qwen, tmp_path):
    assert words in refusal(tmp_path / "x.gguf", qwen.with_keys(**changed).build())


def test_sizes_of_one_architecture(tmp_path):
    path = tmp_path / "x.gguf"
    jamba = take_apart(write_model(path, "jamba"))
    said = refusal(path, jamba.with_keys(jamba__ssm__inner_size=u32(64)).build())
    assert "jamba.ssm.inner_size of 64 for an embedding_length of 64" in said


@pytest.mark.parametrize(
    ("arch", "words"), [(b"clip", "a multimodal projector"), (b"eagle3", "a draft head")]
)
def test_what_is_no_model_by_itself(arch, words, llama, tmp_path):
    raw = llama.with_keys(general__architecture=(STRING, text(arch))).build()
    assert f"is {words}, not a model" in refusal(tmp_path / "x.gguf", raw)
    raw = llama.with_keys(general__architecture=(STRING, text(b"llada-moe"))).build()
    assert "no llada-moe.expert_count" in refusal(tmp_path / "x.gguf", raw)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (b"output_norm.weight", 26, "not a type for weights"),
        (b"output_norm.weight", 1, "must be F32"),
        (b"blk.0.attn_q.weight", 28, "not a type for weights"),
    ],
)
def test_types_that_nothing_computes_with(name, kind, words, llama, tmp_path):
    tensors = [replace(one, kind=kind) if one.name == name else one for one in llama.tensors]
    raw = laid_out(replace(llama, tensors=tensors)).build()
    said = refusal(tmp_path / "x.gguf", raw)
    assert words in said
    assert name.decode() in said
    if kind == 1:
        assert accepted(tmp_path / "x.gguf", raw, has_gpu=True)


def test_an_override_counts_instead_of_the_value(llama, tmp_path):
    path, flag = tmp_path / "x.gguf", "--override-kv"
    raw = llama.with_keys(llama__block_count=u32(0)).build()
    assert accepted(path, raw, flag, "llama.block_count=int:2")
    assert "llama.block_count of 600" in refusal(path, llama.build(), flag, "llama.block_count=int:600")


def split(whole, folder, n_first):
    """The model in two parts, as llama-gguf-split writes them."""
    paths = [folder / f"tiny-0000{i}-of-00002.gguf" for i in (1, 2)]

    def keys(i):
        parts = {b"split.no": i, b"split.count": 2}
        keys = [Key(name, 2, struct.pack("<H", value)) for name, value in parts.items()]
        return [*keys, Key(b"split.tensors.count", 5, struct.pack("<i", len(whole.tensors)))]

    at = whole.tensors[n_first].offset
    first = replace(
        whole, keys=[*whole.keys, *keys(0)], tensors=whole.tensors[:n_first], data=whole.data[:at]
    )
    second = replace(
        whole,
        keys=keys(1),
        tensors=[replace(one, offset=one.offset - at) for one in whole.tensors[n_first:]],
        data=whole.data[at:],
    )
    paths[0].write_bytes(first.build())
    paths[1].write_bytes(second.build())
    return paths


def test_a_model_in_parts(llama, tmp_path):
    paths = split(llama, tmp_path, 4)
    settings = parse(["-m", str(paths[0]), "-c", "512"], {}).settings.model
    load(settings, 1, Loading()).close()
    with pytest.raises(LoadError, match="not the first part"):
        load(parse(["-m", str(paths[1])], {}).settings.model, 1, Loading())
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[:-100])
    with pytest.raises(LoadError, match=r"00002-of-00002\.gguf could not be loaded .* cut short"):
        load(settings, 1, Loading())
    paths[1].unlink()
    with pytest.raises(LoadError, match=r"tiny-00002-of-00002\.gguf is missing"):
        load(settings, 1, Loading())
    paths[1].write_bytes(whole)
    other = paths[0].rename(tmp_path / "model.gguf")
    with pytest.raises(LoadError, match=r"name it \.\.\.-00001-of-00002"):
        load(parse(["-m", str(other)], {}).settings.model, 1, Loading())


def test_a_vocabulary_without_tensors_is_read(llama, tmp_path):
    """It has nothing to compute with, which is llama.cpp's to say."""
    assert accepted(tmp_path / "x.gguf", replace(llama, tensors=[], data=b"").build())


def test_a_large_vocabulary_takes_no_time(tmp_path):
    """150,000 tokens and twice as many merges, in processor time."""
    path = tmp_path / "large.gguf"
    writer = Writer(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token number {i}" for i in range(150_000)])
    writer.add_array("tokenizer.ggml.merges", [f"left{i} right{i}" for i in range(300_000)])
    writer.add_tokenizer_model("gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    settings = parse(["-m", str(path)], {}).settings.model
    times = []
    for _ in range(5):
        t = time.thread_time()
        check_gguf(settings, lambda: False)
        times.append(time.thread_time() - t)
    assert min(times) < 0.1


def test_what_is_refused_never_reaches_llama_cpp(llama, tmp_path):
    """On both of these it would abort: the child ends with a sentence."""
    path = tmp_path / "x.gguf"
    with Loader() as loader:
        for changed in ({"llama__block_count": u32(0)}, {"tokenizer__ggml__tokens": strings(b"a", b"a")}):
            path.write_bytes(llama.with_keys(**changed).build())
            outcome = loader.load(path, "-c", "512")
            assert (outcome.code, str(path) in outcome.reason) == (REFUSED, True)
        path.write_bytes(llama.build())
        assert loader.load(path, "-c", "512").code == LOADED
