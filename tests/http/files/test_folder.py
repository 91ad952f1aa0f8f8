"""No path leads out of a served folder: names, links, and files that are none."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamad.http.files.folder import Folder, IsFolder, Missing, names_of, refusal
from llamad.http.request import parse_target

SECRET = b"secret"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, beside one that nobody may see."""
    top = tmp_path_factory.mktemp("top")
    (top / "secret.txt").write_bytes(SECRET)
    root = top / "www"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    for name in ("index.html", "a b.txt", "sub/index.html", "sub/deep/x.js", "ünï.txt", "…"):
        (root / name).write_bytes(b"open")
    for name in (".env", ".git/config", "sub/.hidden"):
        (root / name).write_bytes(SECRET)
    (root / "inside.txt").symlink_to("sub/deep/x.js")
    (root / "inside").symlink_to("sub/deep")
    (root / "out.txt").symlink_to("../secret.txt")
    (root / "out").symlink_to("..")
    (root / "absolute").symlink_to(top)
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(root / "socket"))
    (root / "null").symlink_to("/dev/null")
    return root


def read(root: Path, path: str) -> bytes:
    file = Folder(str(root)).open(names_of(path))
    try:
        return os.read(file, 100)
    finally:
        os.close(file)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/index.html",
        "/a b.txt",
        "/sub/",
        "/sub/deep/x.js",
        "/ünï.txt",
        "/…",
        "/inside.txt",
        "/inside/x.js",
    ],
)
def test_files_and_links_that_stay_inside_are_served(served: Path, path: str) -> None:
    assert read(served, path) == b"open"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/nope",
            "/nope/",
            "/index.html/",
            "/index.html/x",
            "/sub/deep/",
            "//",
            "//index.html",
            "/sub//index.html",
        ),
        *("/..", "/../secret.txt", "/sub/../../secret.txt", "/sub/../index.html", "/./index.html"),
        *("/.env", "/.git/config", "/sub/.hidden", "/...", "/..\\secret.txt", "/sub\\index.html"),
        *("/index.html\0", "/index.html\0.js", "/\n", "/a\x7f", "*", "", "index.html"),
        *(
            "/out.txt",
            "/out/secret.txt",
            "/absolute/secret.txt",
            "/loop",
            "/loop/x",
            "/pipe",
            "/socket",
            "/null",
        ),
        *("/" + "x" * 300, "/" + "x/" * 600),
    ],
)
def test_everything_else_is_missing(served: Path, path: str) -> None:
    with pytest.raises(Missing):
        read(served, path)


def test_a_folder_without_its_slash(served: Path) -> None:
    for path in ("/sub", "/inside"):
        with pytest.raises(IsFolder):
            read(served, path)


PARTS = [
    *(
        "..",
        ".",
        "",
        "/",
        "\\",
        "secret.txt",
        "sub",
        "deep",
        "index.html",
        "out",
        "absolute",
        "inside",
        ".env",
        "www",
    ),
    *(
        "%2e%2e",
        "%2E.",
        "%2f",
        "%5c",
        "%00",
        "..;",
        "...",
        "%252e%252e",
        "%c0%ae%c0%ae",
        "\u2025",
        "~",
        "/etc/passwd",
    ),
]


@given(
    st.lists(st.sampled_from(PARTS) | st.text(max_size=5).map(quote), max_size=8), st.sampled_from(["/", ""])
)
@example(["..", "secret.txt"], "/")
@example(["out", "secret.txt"], "/")
@example(["%2e%2e%2fsecret.txt"], "/")
def test_no_path_reads_a_secret(served: Path, parts: list[str], joint: str) -> None:
    """As a client sends it: the secret is in the folder's parent and in its hidden files."""
    path, _ = parse_target(("/" + joint.join(parts)).encode())
    try:
        assert read(served, path) == b"open"
    except (Missing, IsFolder):
        pass


def test_the_folder_may_be_replaced_while_it_is_served(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(name)
    link = tmp_path / "current"
    link.symlink_to("one")
    folder = Folder(str(link))

    def text() -> bytes:
        file = folder.open(["index.html"])
        try:
            return os.read(file, 10)
        finally:
            os.close(file)

    assert text() == b"one"
    link.unlink()
    link.symlink_to("two")
    assert text() == b"two"


def test_a_link_that_appears_after_the_check_is_not_followed(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race that a check of the path alone would lose: the name is a link by the time it is opened."""
    real = os.path.realpath
    root = real(os.fsencode(served))

    def too_early(path: bytes) -> bytes:
        return real(path) if path == os.fsencode(served) else root + b"/out/secret.txt"

    monkeypatch.setattr(os.path, "realpath", too_early)
    with pytest.raises(Missing):
        Folder(str(served)).open(["any"])


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)) is None
    assert "No such file or directory" in (refusal(str(tmp_path / "nope")) or "")
    file = tmp_path / "file"
    file.touch()
    assert "Not a directory" in (refusal(str(file)) or "")
