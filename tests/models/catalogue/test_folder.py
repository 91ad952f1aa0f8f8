"""The models of --models-dir: their names, their projectors, and folders that nobody should enter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.many_models.catalogues import Place

from llamad.models.catalogue import folder
from llamad.models.catalogue.errors import CatalogueError


def listed(place: Place) -> dict[str, str]:
    """The models by name, with their paths below the folder."""
    models = folder.read(str(place.models)).models
    return {one.name: os.path.relpath(one.path, place.models) for one in models}


def write(place: Place, *paths: str) -> None:
    place.models.mkdir(exist_ok=True)
    for path in paths:
        place.file(f"models/{path}")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], {}),
        (["a.gguf", "b-Q4_0.gguf"], {"a": "a.gguf", "b-Q4_0": "b-Q4_0.gguf"}),
        (["a.gguf.gguf"], {"a": "a.gguf.gguf"}),
        (["notes.txt", "a.bin"], {}),
        (["mmproj-a.gguf", "mtp-a.gguf", "dspark-a.gguf", "dflash-a.gguf"], {}),
        (
            ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"],
            {"big": "big-00001-of-00002.gguf"},
        ),
        (["one/x-Q4_0.gguf"], {"one": "one/x-Q4_0.gguf"}),
        (["one/x.gguf", "one/mmproj-x.gguf", "one/mtp-x.gguf"], {"one": "one/x.gguf"}),
        (["one/x.gguf", "one/x.imatrix.gguf"], {"one": "one/x.gguf"}),
        (
            ["one/x-00001-of-00002.gguf", "one/x-00002-of-00002.gguf"],
            {"one": "one/x-00001-of-00002.gguf"},
        ),
        (
            ["two/x-q4_k_m.gguf", "two/x-Q8_0.gguf"],
            {"two:Q4_K_M": "two/x-q4_k_m.gguf", "two:Q8_0": "two/x-Q8_0.gguf"},
        ),
        (
            ["two/x-Q4_0-00001-of-00002.gguf", "two/x-Q4_0-00002-of-00002.gguf", "two/x-Q8_0.gguf"],
            {"two:Q4_0": "two/x-Q4_0-00001-of-00002.gguf", "two:Q8_0": "two/x-Q8_0.gguf"},
        ),
        (
            ["two/x-Q4_0.gguf", "two/y-Q4_0.gguf", "two/z-Q8_0.gguf"],
            {"two/x-Q4_0": "two/x-Q4_0.gguf", "two/y-Q4_0": "two/y-Q4_0.gguf", "two:Q8_0": "two/z-Q8_0.gguf"},
        ),
        (["two/x.gguf", "two/y.gguf"], {"two/x": "two/x.gguf", "two/y": "two/y.gguf"}),
        (
            ["publisher/model/x-Q4_0.gguf", "publisher/other/y.gguf"],
            {"publisher/model": "publisher/model/x-Q4_0.gguf", "publisher/other": "publisher/other/y.gguf"},
        ),
        (
            ["p/m/x-Q4_0.gguf", "p/m/x-Q8_0.gguf"],
            {"p/m:Q4_0": "p/m/x-Q4_0.gguf", "p/m:Q8_0": "p/m/x-Q8_0.gguf"},
        ),
        (["p/x.gguf", "p/m/y.gguf"], {"p": "p/x.gguf", "p/m": "p/m/y.gguf"}),
        ([".hidden/x.gguf", "p/.cache/y.gguf"], {}),
        (["/".join("abcdefgh") + "/x.gguf"], {"a/b/c/d/e/f/g/h": "a/b/c/d/e/f/g/h/x.gguf"}),
        (["/".join("abcdefghi") + "/x.gguf"], {}),  # too deep
    ],
)
def test_names(place: Place, files: list[str], expected: dict[str, str]) -> None:
    write(place, *files)
    assert listed(place) == expected


def test_a_part_that_is_missing(place: Place) -> None:
    write(place, "one/x-00001-of-00003.gguf", "one/x-00003-of-00003.gguf")
    (model,) = folder.read(str(place.models)).models
    assert "x-00002-of-00003.gguf is missing, one of the 3 parts" in model.reason
    assert place.read().entries["one"].reason == model.reason


def test_projectors(place: Place) -> None:
    write(
        place,
        "one/x-Q8_0.gguf",
        "one/mmproj-x-BF16.gguf",
        "one/mmproj-x-Q8_0.gguf",
        "two/y.gguf",
        "mmproj-z.gguf",
    )
    models = {one.name: one for one in folder.read(str(place.models)).models}
    assert models["one"].projector.endswith("one/mmproj-x-Q8_0.gguf")
    assert models["two"].projector == ""
    entries = place.read().entries
    assert entries["one"].settings is not None
    assert entries["one"].settings.mmproj == models["one"].projector


def test_a_draft_that_is_not_used_is_named(place: Place) -> None:
    write(place, "one/x.gguf", "one/mtp-x.gguf")
    listing = folder.read(str(place.models))
    assert [warning.partition(" is not used")[0] for warning in listing.warnings] == [
        str(place.models / "one" / "mtp-x.gguf")
    ]


def test_links(place: Place, tmp_path: Path) -> None:
    write(place, "real/x.gguf")
    (place.models / "real" / "circle").symlink_to(place.models)
    (place.models / "self").symlink_to(place.models / "self")
    (place.models / "same").symlink_to(place.models / "real")
    (place.models / "gone.gguf").symlink_to(tmp_path / "nowhere.gguf")
    (place.models / "link.gguf").symlink_to(place.models / "real" / "x.gguf")
    os.mkfifo(place.models / "pipe.gguf")
    (place.models / "folder.gguf").mkdir()
    # Both names of a folder are listed, and its link to the top is not followed.
    assert listed(place) == {"link": "link.gguf", "real": "real/x.gguf", "same": "same/x.gguf"}


def test_many_circles_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "FOLDERS_MAX", 20)
    for name in "abcd":
        write(place, f"{name}/x.gguf")
    for name in "abcd":
        for other in "abcd":
            (place.models / name / f"to-{other}").symlink_to(place.models / other)
    listing = folder.read(str(place.models))
    assert {"a", "b", "c", "d"} & {one.name for one in listing.models}
    assert "more than 20 folders" in listing.warnings[-1]


def test_a_folder_that_cannot_be_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, "closed/x.gguf", "open/y.gguf")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    listing = folder.read(str(place.models))
    assert [one.name for one in listing.models] == ["open"]
    assert "Permission denied" in listing.warnings[0]


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_the_folder_itself_must_be_there(place: Place, name: str) -> None:
    place.file("file")
    with pytest.raises(CatalogueError) as error:
        folder.read(str(place.root / name))
    assert str(error.value).startswith(f"--models-dir {place.root / name}: N")


def test_a_name_that_is_no_text(place: Place) -> None:
    place.models.mkdir()
    with open(os.fsencode(place.models) + b"/\xff.gguf", "wb") as file:
        file.write(b"GGUF")
    write(place, "a\nb.gguf", "good.gguf")
    listing = folder.read(str(place.models))
    assert [one.name for one in listing.models] == ["good"]
    assert len(listing.warnings) == 2
    assert all(warning.isprintable() for warning in listing.warnings)
