"""Asks a hub for the current commit of a repository and the files in it. Any thread; blocks."""

from __future__ import annotations

import re
from typing import TypeVar
from urllib.parse import quote

import msgspec

from llamad.models.hub.client import Client, has_origin_of, join, shown
from llamad.models.hub.errors import HubError
from llamad.models.hub.names import is_safe

PAGES_MAX = 100
_BRANCH = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII | re.IGNORECASE)
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII | re.IGNORECASE)
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,]*\brel="?next"?', re.IGNORECASE)

_T = TypeVar("_T")


class RemoteFile(msgspec.Struct, frozen=True):
    """A file of a repository. `oid` is the SHA-256 of a large file, or git's SHA-1 of a small one; "" if not known."""

    path: str
    size: int | None
    oid: str
    url: str


class Listing(msgspec.Struct, frozen=True):
    commit: str
    files: list[RemoteFile]


class _Branch(msgspec.Struct, rename="camel"):
    name: str = ""
    target_commit: str = ""


class _Refs(msgspec.Struct):
    branches: list[_Branch] = []


class _LargeFile(msgspec.Struct):
    oid: str = ""
    size: int | None = None


class _Entry(msgspec.Struct):
    type: str = ""
    path: str = ""
    oid: str = ""
    size: int | None = None
    lfs: _LargeFile | None = None


def list_files(client: Client, repo: str) -> Listing:
    """Return the repository's files at its current commit. Raises HubError."""
    base = f"{client.endpoint}api/models/{repo}"
    _, refs = _get(client, f"{base}/refs", repo, _Refs)
    commit = _current(refs)
    if not commit:
        raise HubError(f"{repo} has no branch at {shown(client.endpoint)}")
    files: list[RemoteFile] = []
    url = f"{base}/tree/{commit}?recursive=true"
    for _ in range(PAGES_MAX):
        link, entries = _get(client, url, repo, list[_Entry])
        files += [file for entry in entries if (file := _file(client, repo, commit, entry)) is not None]
        following = _NEXT.search(link)
        if following is None:
            return Listing(commit, files)
        url = join(url, following[1])
        if not has_origin_of(url, client.endpoint):
            raise HubError(f"{shown(client.endpoint)} lists the files of {repo} at another host")
    raise HubError(f"{repo} has too many files")


def _current(refs: _Refs) -> str:
    """Return the commit of the main branch, or of the first one; "" if there is none."""
    valid = [one for one in refs.branches if _COMMIT.fullmatch(one.target_commit)]
    for branch in valid:
        if branch.name == _BRANCH:
            return branch.target_commit
    return valid[0].target_commit if valid else ""


def _file(client: Client, repo: str, commit: str, entry: _Entry) -> RemoteFile | None:
    if entry.type != "file" or not is_safe(entry.path):
        return None
    oid = (entry.lfs.oid if entry.lfs is not None else entry.oid).lower()
    if oid and not _OID.fullmatch(oid):
        return None
    size = entry.lfs.size if entry.lfs is not None and entry.lfs.size is not None else entry.size
    url = f"{client.endpoint}{repo}/resolve/{commit}/{quote(entry.path)}"
    return RemoteFile(entry.path, size if size is None or size >= 0 else None, oid, url)


def _get(client: Client, url: str, repo: str, kind: type[_T]) -> tuple[str, _T]:
    """Return the Link header and the decoded body. Raises HubError."""
    response, body = client.get_json(url)
    if response.status != 200:
        raise refused(response.status, client, url, repo)
    try:
        return response.header("Link"), msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HubError(f"{shown(url)}: this is not the response of a model hub ({error})") from None


def refused(status: int, client: Client, url: str, repo: str | None) -> HubError:
    """Return the error for a response with this status."""
    what = repo or shown(url)
    page = f"{shown(client.endpoint)}{repo}" if repo else shown(url)
    if status in (401, 403) and repo is None and not has_origin_of(url, client.endpoint):
        return HubError(
            f"{what} needs a valid user and password (status {status}); give them as https://USER:PASSWORD@HOST/..."
        )
    if status == 401 and not client.has_credential(url):
        return HubError(
            f"{what} does not exist, or needs a token: check the name, or set HF_TOKEN (--hf-token); if the model has a"
            f" licence to accept, do so at {page} first"
        )
    if status in (401, 403):
        return HubError(
            f"{what}: the token is not enough (status {status}); check HF_TOKEN (--hf-token), and accept the model's"
            f" licence at {page} with the token's account"
        )
    if status == 404:
        return HubError(f"{what} does not exist at {shown(client.endpoint if repo else url)}; check the name")
    return HubError(f"{shown(url)} answers with status {status}")
