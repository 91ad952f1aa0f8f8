"""The variants of the compiled modules, each with its flags and its build folder. The environment chooses one.

LLAMAD_NATIVE=1         for this machine's CPU (make sets it)
LLAMAD_DEBUG_BUILD=1    -O0 -g and bounds checks
LLAMAD_SANITIZE=address or thread   AddressSanitizer with UBSan, or ThreadSanitizer
"""

import os
import platform
from dataclasses import dataclass

from recipe.report import SetupError

SANITIZERS = {
    "address": ("asan", ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")),
    "thread": ("tsan", ("-fsanitize=thread",)),
}


@dataclass(frozen=True)
class Variant:
    """`compile` goes to the compiler, `link` to the linker, `translate` to Cython."""

    name: str
    compile: tuple[str, ...]
    link: tuple[str, ...] = ()
    translate: tuple[str, ...] = ()
    checks_bounds: bool = False

    @property
    def folder(self) -> str:
        """Relative to the checkout. Each variant keeps its own objects, so that switching needs no clean."""
        return f"build/{self.name}"


def chosen() -> Variant:
    sanitizer = os.environ.get("LLAMAD_SANITIZE", "")
    if sanitizer:
        if sanitizer not in SANITIZERS:
            raise SetupError(f"LLAMAD_SANITIZE={sanitizer}: set it to {' or '.join(SANITIZERS)}, or unset it")
        name, flags = SANITIZERS[sanitizer]
        compile_ = ("-O1", "-g", "-fno-omit-frame-pointer", *_as_llama_rounds(), *flags)
        lines_of_pyx = ("--line-directives",)  # for stacks
        return Variant(name, compile_, flags, translate=lines_of_pyx)
    if os.environ.get("LLAMAD_DEBUG_BUILD") == "1":
        return Variant("debug", ("-O0", "-g", "-UNDEBUG"), checks_bounds=True)
    # -g0, because Python's own flags add debug information: 1/8 of the time to compile, and 7/8 of the size.
    fast = ("-O3", "-g0", *_as_llama_rounds())
    if os.environ.get("LLAMAD_NATIVE") == "1":
        arm = platform.machine() in ("aarch64", "arm64")
        return Variant("native", (*fast, "-mcpu=native" if arm else "-march=native"))
    return Variant("portable", fast)


def _as_llama_rounds() -> tuple[str, ...]:
    """Return flags with which our samplers round as llama.cpp's do, which have no fused multiply-add on x86-64."""
    return ("-ffp-contract=off",) if platform.machine() in ("x86_64", "AMD64") else ()
