"""Puts what was built into a package folder, the checkout's own or a wheel's: llama.cpp's libraries and programs with
their licences, the compiled modules, and a description that the daemon reads. Replaces a file only if it differs.
"""

import json
import os
import shutil
from pathlib import Path

from recipe import cache, pin

DESCRIPTION = "_build_info.json"


def carry_libraries(libraries: Path, package: Path, variant: str) -> None:
    """Each library once, under its SONAME."""
    wanted = {f"lib/{p.name}": p for p in (libraries / "lib").iterdir() if not p.is_symlink()}
    wanted |= {f"bin/{p.name}": p for p in (libraries / "bin").iterdir()}
    wanted |= {f"lib/licenses/{p.name}": p for p in (libraries / "licenses").iterdir()}
    described = package / DESCRIPTION
    text = json.dumps(_description(libraries, variant), indent=2) + "\n"
    sizes = {name: path.stat().st_size for name, path in wanted.items()}
    if described.is_file() and described.read_text(encoding="utf-8") == text and sizes == _carried(package):
        return
    described.unlink(missing_ok=True)
    for folder in ("lib", "bin"):
        shutil.rmtree(package / folder, ignore_errors=True)
    for name, path in wanted.items():
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
        for folder in ("lib", "bin")
        for path in (package / folder).rglob("*")
        if path.is_file()
    }


def carry_modules(products: dict[str, Path], package: Path, suffix: str) -> None:
    """The modules, by name. Those of an earlier build that are no more go."""
    wanted = {package.parent / (name.replace(".", "/") + suffix): path for name, path in products.items()}
    for found in package.rglob("*" + suffix):
        if found not in wanted:
            found.unlink()
    for target, made in wanted.items():
        if not _same(target, made):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f"{target.name}.{os.getpid()}")
            shutil.copy2(made, fresh)
            fresh.rename(target)  # a program that runs keeps the old file


def _same(target: Path, made: Path) -> bool:
    if not target.is_file():
        return False
    ours, theirs = target.stat(), made.stat()
    return (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def link_sources(checkout: Path, package: Path) -> None:
    """A package folder beside the checkout's, for modules that must not replace its own: links to all else."""
    source = checkout / "llamad"
    shutil.rmtree(package, ignore_errors=True)
    for path in source.rglob("*"):
        if path.is_file() and path.suffix in (".py", ".pyi", ".typed"):
            target = package / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
