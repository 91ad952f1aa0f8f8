"""Lists the compiled modules: one for each ext/llamad/**/*.pyx, and `llamad._llama` from ext/llama. Knows the sources
of each, and which ones are not in a wheel. Reads files, builds nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from recipe.report import SetupError

BINDING = "llamad._llama"
TESTING = "testing"  # a folder of this name holds modules that only tests and benchmarks use


@dataclass(frozen=True)
class Module:
    """A compiled module. `sources` are further files to compile; all paths are relative to the checkout."""

    name: str
    pyx: str
    language: str
    sources: tuple[str, ...]

    @property
    def is_binding(self) -> bool:
        return self.name == BINDING


def find(root: Path) -> list[Module]:
    """Return every module of the checkout, including those for tests."""
    modules = [_cython(root, pyx) for pyx in sorted((root / "ext" / "llamad").rglob("*.pyx"))]
    sources = sorted((root / "ext" / "llama").rglob("*.cpp"))
    if sources:
        modules.append(Module(BINDING, "", "c++", tuple(str(p.relative_to(root)) for p in sources)))
    return modules


def is_test_only(name: str) -> bool:
    """Return whether a module, compiled or not, is left out of wheels."""
    return TESTING in name.split(".")


def _cython(root: Path, pyx: Path) -> Module:
    """Return the module of a file: ext/llamad/engine/loop.pyx is llamad.engine.loop.

    Its first lines may name a language and more sources: `# distutils: sources = ext/a.cpp ext/b/*.cpp`.
    """
    name = ".".join(pyx.relative_to(root / "ext").with_suffix("").parts)
    settings = {"language": "c", "sources": ""}
    for line in pyx.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if setting := re.match(r"#\s*distutils:\s*(\w+)\s*=\s*(.*)", line):
            if setting[1] not in settings:
                raise SetupError(f"{pyx}: the build knows no {setting[1]}, only language and sources")
            settings[setting[1]] = setting[2].strip()
    sources: list[str] = []
    for pattern in settings["sources"].split():
        matches = sorted(str(path.relative_to(root)) for path in root.glob(pattern))
        if not matches:
            raise SetupError(f"{pyx}: there is no {pattern}")
        sources += matches
    return Module(name, str(pyx.relative_to(root)), settings["language"], tuple(sources))
