"""The licences that the package carries: one for each part that is linked into llama.cpp's libraries."""

from pathlib import Path

import pytest

from recipe import licences, report
from tiny_llama_cpp import CHECKOUT


def test_the_package_has_the_licence_of_all_that_its_libraries_hold() -> None:
    folder = CHECKOUT / "llamad" / "lib" / "licenses"
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}

    assert set(texts) == {
        "llama.cpp-and-ggml.txt",
        "llamafile-sgemm.txt",
        "YaRN.txt",
        "stb_image.txt",
        "miniaudio.txt",
        "sha256.txt",
        "rotate-bits.txt",
    }
    permission = "Permission is hereby granted, free of charge"
    with_permission = {name for name, text in texts.items() if permission in text}
    assert with_permission == set(texts) - {"sha256.txt", "YaRN.txt"}
    assert "Public domain" in texts["sha256.txt"]
    assert "Copyright (c) 2023 Jeffrey Quesnelle and Bowen Peng" in texts["YaRN.txt"]
    assert not any("*/" in text or "\n//" in text or "#include" in text for text in texts.values())


def test_the_package_has_its_own_licence() -> None:
    assert (CHECKOUT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License\n")


def write_tree(folder: Path) -> Path:
    """Sources in which each part is where the list says."""
    for part in licences.LINKED:
        path = folder / part.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"#include <x>\n{part.begin} and so on\nterms of {part.name}\n{part.end}\nint x;\n"
        path.write_text(text if part.begin else f"terms of {part.name}\n")
    return folder


def test_a_licence_inside_a_source_file_is_taken_without_the_code(tmp_path: Path) -> None:
    licences.collect(write_tree(tmp_path / "tree"), tmp_path / "out", strict=True)

    for part in licences.LINKED:
        text = (tmp_path / "out" / licences.file_name(part)).read_text()
        assert f"terms of {part.name}" in text
        assert part.path in text
        assert "#include" not in text
        assert "int x" not in text


@pytest.mark.parametrize("part", licences.LINKED, ids=lambda part: part.name)
def test_a_licence_that_moved_is_noticed_with_the_pinned_sources(tmp_path: Path, part: licences.Part) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / part.path).write_text("" if part.begin else "\n")

    with pytest.raises(report.SetupError, match=r"recipe/licences\.py"):
        licences.collect(tree, tmp_path / "out", strict=True)


def test_other_sources_need_only_their_own_licence(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("a licence\n")
    licences.collect(tmp_path, tmp_path / "out", strict=False)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["llama.cpp-and-ggml.txt"]

    (tmp_path / "LICENSE").unlink()
    with pytest.raises(report.SetupError, match=r"recipe/licences\.py"):
        licences.collect(tmp_path, tmp_path / "other", strict=False)
