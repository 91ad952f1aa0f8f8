"""Copies the results of a build into a package folder, the checkout's own or a wheel's: llama.cpp's libraries and
programs with their licences, the compiled modules, and a description that the daemon reads. Replaces a file
only if it differs.
"""

import json
import os
import shutil
from pathlib import Path

from recipe import cache, pin

DESCRIPTION = "_build_info.json"


def carry_libraries(libraries: Path, package: Path, variant: str) -> None:
    """Copy each library once, under its SONAME, and the programs and licences. A program looks for backends that are
    modules in its own folder, so it is in that of the libraries."""
    files = {f"lib/{p.name}": p for p in (libraries / "lib").iterdir() if not p.is_symlink()}
    files |= {f"lib/{p.name}": p for p in (libraries / "bin").iterdir() if not p.is_symlink()}
    files |= {f"lib/licenses/{p.name}": p for p in (libraries / "licenses").iterdir()}
    described = package / DESCRIPTION
    text = json.dumps(_description(libraries, variant), indent=2) + "\n"
    sizes = {name: path.stat().st_size for name, path in files.items()}
    if described.is_file() and described.read_text(encoding="utf-8") == text and sizes == _carried(package):
        return
    described.unlink(missing_ok=True)
    for folder in ("lib", "bin"):  # earlier versions had a bin
        shutil.rmtree(package / folder, ignore_errors=True)
    for name, path in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, package / name)
    described.write_text(text, encoding="utf-8")


def _description(libraries: Path, variant: str) -> dict[str, object]:
    meta = cache.read_meta(libraries)
    return {
        "llama_cpp": {
            "commit": meta["commit"],
            "build_info": f"b0-{meta['commit']}",
            "version": pin.LLAMA_CPP.version if str(meta["source"]).startswith("pin-") else None,
        },
        "key": meta["key"],
        "flags": meta["flags"],
        "compiler": meta["toolchain"]["compiler"],  # type: ignore[index]
        "target": meta["toolchain"]["target"],  # type: ignore[index]
        "variant": variant,
    }


def _carried(package: Path) -> dict[str, int]:
    return {
        str(path.relative_to(package)): path.stat().st_size
        for path in (package / "lib").rglob("*")
        if path.is_file()
    }


def carry_modules(products: dict[str, Path], package: Path, suffix: str) -> None:
    """Copy the modules, and remove those of an earlier build that do not exist any more."""
    targets = {package.parent / (name.replace(".", "/") + suffix): path for name, path in products.items()}
    for installed in package.rglob("*" + suffix):
        if installed not in targets:
            installed.unlink()
    for target, made in targets.items():
        if not _same(target, made):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f"{target.name}.{os.getpid()}")
            shutil.copy2(made, fresh)
            fresh.rename(target)  # a running program keeps the old file


def _same(target: Path, made: Path) -> bool:
    if not target.is_file():
        return False
    ours, theirs = target.stat(), made.stat()
    return (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def link_sources(checkout: Path, package: Path) -> None:
    """Make a second package folder, for modules that must not replace those of the checkout, with links to all other
    files."""
    source = checkout / "llamad"
    shutil.rmtree(package, ignore_errors=True)
    for path in source.rglob("*"):
        if path.is_file() and path.suffix in (".py", ".pyi", ".typed"):
            target = package / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
