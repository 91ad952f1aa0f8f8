"""Gets the files of the model that the flags name: from a hub, from an address, or from the cache.

Any thread; blocks for as long as a download takes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from llamad.flags.settings import ModelSettings
from llamad.models.hub import names
from llamad.models.hub.cache import HubCache, hub_folder, url_folder
from llamad.models.hub.client import DEFAULT_ENDPOINT, Client, shown
from llamad.models.hub.download import (
    OTHER_FOLDER,
    PAUSE_SECONDS,
    SPARE_BYTES,
    TRIES_MAX,
    Downloader,
    FileRequest,
    free_bytes,
)
from llamad.models.hub.errors import Cancelled, HubError
from llamad.models.hub.part_file import part_path
from llamad.models.hub.progress import Meter, size_text
from llamad.models.hub.repository import Listing, RemoteFile, list_files

log = logging.getLogger("llamad.download")

_PRESET = "preset.ini"


class Files(msgspec.Struct, frozen=True):
    """The paths of a model's files; `projector` is None if there is none, or none should be used."""

    model: str
    projector: str | None


def endpoint_of(environ: Mapping[str, str]) -> str:
    return environ.get("MODEL_ENDPOINT") or environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT


class Fetch:
    """Gets the files of one model. With `is_offline` it uses only the cache."""

    def __init__(
        self,
        settings: ModelSettings,
        environ: Mapping[str, str],
        *,
        meter: Meter | None = None,
        stop: threading.Event | None = None,
        is_offline: bool = False,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._settings = settings
        self._is_offline = is_offline or settings.offline
        self._cache = HubCache(hub_folder(environ))
        self._url_folder = url_folder(environ)
        self._client = Client(endpoint_of(environ), settings.hf_token)
        self._meter = meter or Meter()
        self._downloader = Downloader(self._client, self._meter, stop, pause_seconds)

    def run(self) -> Files:
        """Return the paths of the files, after downloading what is missing. Raises HubError."""
        settings = self._settings
        try:
            if settings.hf_repo is not None:
                files = self._from_hub(settings.hf_repo)
            else:
                files = Files(self._model_of_url(), settings.mmproj)
            if settings.mmproj_url is not None and settings.mmproj_auto is not False:
                path = self._from_url("--mmproj-url", settings.mmproj_url, settings.mmproj)
                files = msgspec.structs.replace(files, projector=path)
            return files
        except OSError as error:
            raise HubError(
                f"{error.filename or self._cache.root}: {error.strerror}; {OTHER_FOLDER}"
            ) from None

    def check(self) -> None:
        """Ask the hub whether it has the model that --hf-repo names. Raises HubError."""
        assert self._settings.hf_repo is not None
        repo, quant = names.split_name(self._settings.hf_repo)
        if self._settings.offline:
            raise HubError("the server was started with --offline, so it downloads nothing")
        listing = list_files(self._client, repo)
        self._choose(repo, quant, [file.path for file in listing.files])

    @property
    def _wants_projector(self) -> bool:
        """Return whether the projector of the repository should be used."""
        settings = self._settings
        return settings.mmproj_auto is not False and settings.mmproj is None and settings.mmproj_url is None

    # From a hub.

    def _from_hub(self, name: str) -> Files:
        repo, quant = names.split_name(name)
        cached = self._cached(repo, quant)
        if self._is_offline:
            if cached is None:
                raise HubError(
                    f"{name} is not in the cache, {self._cache.root}; download it with `llamad pull {name}`"
                )
            return cached
        # If there is a cached model to fall back on, nobody waits for a hub that is down.
        n_tries = TRIES_MAX if cached is None else 1
        try:
            return self._download(repo, quant, n_tries)
        except Cancelled:
            raise
        except HubError as error:
            if cached is None:
                raise
            log.warning("%s; using what is in the cache: %s", error, cached.model)
            return cached

    def _cached(self, repo: str, quant: str) -> Files | None:
        """Return the files from the newest snapshot that has them, or None."""
        for commit in self._cache.commits(repo):
            paths = self._cache.files(repo, commit)
            try:
                shards, projector = self._choose(repo, quant, paths)
            except HubError:
                continue
            local = [str(self._cache.snapshot(repo, commit, path)) for path in (shards[0], projector) if path]
            return Files(local[0], local[1] if projector else self._settings.mmproj)
        return None

    def _list(self, repo: str, n_tries: int) -> Listing:
        for n_vain in range(1, n_tries):
            try:
                return list_files(self._client, repo)
            except HubError as error:
                self._downloader.pause(error, n_vain)
        return list_files(self._client, repo)

    def _choose(self, repo: str, quant: str, paths: list[str]) -> tuple[list[str], str | None]:
        """Return the model's shards and its projector. Raises HubError."""
        file = self._settings.hf_file
        first = names.choose_model(paths, quant) if file is None else file if file in paths else None
        if first is None:
            raise _none_of(repo, quant, file, paths)
        try:
            shards = names.shards_of(paths, first)
        except ValueError as error:
            raise HubError(f"{repo}: {error}; choose another quantization") from None
        return shards, names.choose_projector(paths, first) if self._wants_projector else None

    def _download(self, repo: str, quant: str, n_tries: int) -> Files:
        listing = self._list(repo, n_tries)
        by_path = {file.path: file for file in listing.files}
        if _PRESET in by_path and self._settings.hf_file is None:
            raise HubError(
                f"{repo} is a preset of several models: download its {_PRESET}, read what it sets, and start with"
                f" --models-preset {_PRESET}; or name one of its models with --hf-repo"
            )
        shards, projector = self._choose(repo, quant, list(by_path))
        files = [by_path[path] for path in (*shards, projector) if path is not None]
        missing = [file for file in files if not self._is_there(repo, listing, file)]
        self._check_room(repo, missing)
        self._meter.total += sum(file.size or 0 for file in missing)
        for file in missing:
            target = self._target(repo, listing, file)
            self._downloader.fetch(
                FileRequest(file.url, target, file.path, file.size, file.oid, repo), n_tries
            )
        for file in files:
            if file.oid and not self._cache.snapshot(repo, listing.commit, file.path).exists():
                self._cache.link(repo, listing.commit, file.path, file.oid)
        self._cache.set_current(repo, listing.commit)
        local = [str(self._cache.snapshot(repo, listing.commit, file.path)) for file in files]
        return Files(local[0], local[-1] if projector is not None else self._settings.mmproj)

    def _target(self, repo: str, listing: Listing, file: RemoteFile) -> Path:
        if file.oid:
            return self._cache.blob(repo, file.oid)
        return self._cache.snapshot(repo, listing.commit, file.path)

    def _is_there(self, repo: str, listing: Listing, file: RemoteFile) -> bool:
        """Return whether the whole file is there. A file of another size was left by a program that died."""
        for path in (
            self._cache.snapshot(repo, listing.commit, file.path),
            self._target(repo, listing, file),
        ):
            if path.is_file():
                if file.size is None or path.stat().st_size == file.size:
                    return True
                log.warning("%s does not have the size that the hub lists; downloading it again", path)
                path.unlink()
        return False

    def _check_room(self, repo: str, missing: list[RemoteFile]) -> None:
        """Raise HubError if the missing files do not fit on the disk. This comes before the first byte, because a
        model of several shards must fit as a whole."""
        there = [part_path(self._cache.blob(repo, file.oid)) for file in missing]
        needed = sum(file.size or 0 for file in missing)
        needed -= sum(path.stat().st_size for path in there if path.is_file())
        folder = self._cache.root
        if needed > 0 and needed > free_bytes(folder) - SPARE_BYTES:
            raise HubError(
                f"{repo} needs {size_text(needed)}, and {folder} has {size_text(free_bytes(folder))} free; make room"
                " (`llamad list`, `llamad rm`), or set LLAMA_CACHE to a folder on another disk"
            )

    # From an address.

    def _model_of_url(self) -> str:
        settings = self._settings
        if settings.model_url is None:
            return settings.model
        given = settings.model or None
        parts = urlsplit(settings.model_url)
        urls = [urlunsplit(parts._replace(path=path)) for path in names.shard_names(parts.path)]
        if len(urls) == 1:
            return self._from_url("--model-url", urls[0], given)
        folder = self._url_folder if given is None else Path(given).parent
        paths = [folder / _name(url, "--model-url") for url in urls]
        for url, path in zip(urls, paths, strict=True):
            self._from_url("--model-url", url, str(path))
        return str(paths[0])

    def _from_url(self, flag: str, url: str, path: str | None) -> str:
        target = Path(path) if path is not None else self._url_folder / _name(url, flag)
        if self._is_offline:
            if not target.is_file():
                raise HubError(f"{target} is not there; start without --offline to download it")
            return str(target)
        try:
            self._downloader.fetch(
                FileRequest(url, target, target.name), 1 if target.is_file() else TRIES_MAX
            )
        except Cancelled:
            raise
        except HubError as error:
            if not target.is_file():
                raise
            log.warning("%s; using what is in the cache: %s", error, target)
        return str(target)


def _name(url: str, flag: str) -> str:
    """Return the file's name in the cache. Raises HubError."""
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not names.is_safe(name) or names.shard_of(name) is None:
        raise HubError(f"{flag} {shown(url)}: the address must end with the name of a GGUF file")
    return name


def _none_of(repo: str, quant: str, file: str | None, paths: list[str]) -> HubError:
    there = names.quants(paths)
    if file is not None:
        models = sorted(filter(names.is_model, paths))
        listed = f"it has {', '.join(models[:40])}" if models else "it has no GGUF files"
        return HubError(f"{repo} has no file {file}; {listed}")
    if there or any(map(names.is_model, paths)):
        return HubError(
            f"{repo} has no model of {quant}; it has {', '.join(there) or 'one without a name for it'}"
        )
    return HubError(
        f"{repo} has no GGUF files; look for a repository of the same model whose name ends with GGUF"
    )
