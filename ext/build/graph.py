"""Writes the Ninja file of the compiled modules: translate, compile, link. Cython and the compiler list the files that
they read, so that Ninja rebuilds only what a change affects. Runs nothing.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from recipe.toolchain import Toolchain

from . import ROOT
from .modules import Module
from .python_config import PythonConfig
from .variant import Variant

TRANSLATE = "ext/build/translate.py"
INCLUDES = ("ext", "ext/llama")
BINDING_INPUTS = ("build_llama.py", "declarations.h", "adapters.h", "media.h", "shim.h")
BINDING_FLAGS = ("-std=c++17", "-Wno-missing-field-initializers")
BINDING_LIBRARIES = ("llama", "mtmd", "ggml", "ggml-base")
MODULES, BINDING_OBJECTS = "modules", "binding-objects"  # targets; the default is all of them

RULES = """
rule translate
  command = $python -P $translate $out $in $options
  description = translate $out
  depfile = $out.dep
  deps = gcc
  restat = 1

rule binding
  command = $python -P ext/llama/build_llama.py $out
  description = translate $out
  restat = 1

rule cc
  command = $cc -MMD -MF $out.d $cflags $flags -c $in -o $out
  description = compile $out
  depfile = $out.d
  deps = gcc

rule cxx
  command = $cxx -MMD -MF $out.d $cxxflags $flags -c $in -o $out
  description = compile $out
  depfile = $out.d
  deps = gcc

rule link
  command = $linker $in -o $out $ldflags $libraries
  description = link $out
"""


@dataclass(frozen=True)
class Setting:
    """What the commands depend on. `include` is for llama.cpp's headers; `libraries` is its finished folder."""

    python: PythonConfig
    tools: Toolchain
    variant: Variant
    libraries: Path

    @property
    def include(self) -> str:
        return f"{self.variant.folder}/include"


def write(path: Path, setting: Setting, modules: list[Module]) -> None:
    text = "".join([_head(setting), RULES, *(_module(setting, module) for module in modules)])
    own = [product(setting, module) for module in modules if not module.is_binding]
    bindings = [module for module in modules if module.is_binding]
    objects = [_object(setting, source) for module in bindings for source in _sources(setting, module)]
    text += f"build {MODULES}: phony {' '.join(own)}\nbuild {BINDING_OBJECTS}: phony {' '.join(objects)}\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def product(setting: Setting, module: Module) -> str:
    """Return the path of the linked module before it is copied into a package."""
    return f"{setting.variant.folder}/modules/{module.name.replace('.', '/')}{setting.python.suffix}"


def _head(setting: Setting) -> str:
    env = os.environ
    includes = [f"-I{folder}" for folder in (*INCLUDES, *setting.python.includes)]
    common = [setting.python.cflags, env.get("CPPFLAGS", ""), "$fromenv", *setting.variant.compile, *includes]
    flags = " ".join(part for part in common if part)
    linker = " ".join(shlex.split(setting.python.ldshared)[1:])
    values = {
        "builddir": setting.variant.folder,
        "python": shlex.quote(_from_root(setting.python.python)),
        "translate": TRANSLATE,
        "cc": setting.tools.cc,
        "cxx": setting.tools.cxx,
        "cflags": flags.replace("$fromenv", env.get("CFLAGS", "")),
        "cxxflags": flags.replace("$fromenv", env.get("CXXFLAGS", "")),
        "ldflags": " ".join(
            [setting.tools.link_flags, *setting.variant.link, env.get("LDFLAGS", "")]
        ).strip(),
        "link_c": f"{setting.tools.cc} {linker}",
        "link_cxx": f"{setting.tools.cxx} {linker}",
    }
    return "ninja_required_version = 1.5\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def _module(setting: Setting, module: Module) -> str:
    first, *_ = sources = _sources(setting, module)
    lines = [_binding(first) if module.is_binding else _translate(setting, module, first)]
    lines += [_compile(setting, module, source) for source in sources]
    objects = " ".join(_object(setting, source) for source in sources)
    linker = "$link_cxx" if module.language == "c++" else "$link_c"
    needed, libraries = "", ""
    if module.is_binding:
        needed = f" | {_escaped(str(setting.libraries / 'meta.json'))}"
        # $ORIGIN/lib is llamad/lib, where the package has them.
        names = " ".join(f"-l{name}" for name in BINDING_LIBRARIES)
        libraries = f"-L{shlex.quote(str(setting.libraries / 'lib'))} {names} -Wl,-rpath,'$$ORIGIN/lib'"
    lines.append(f"build {product(setting, module)}: link {objects}{needed}\n  linker = {linker}\n")
    lines.append(f"  libraries = {libraries}\n\n")
    return "".join(lines)


def _sources(setting: Setting, module: Module) -> list[str]:
    """Return the files to compile: first the translated file, then the sources beside the .pyx."""
    ending = ".cpp" if module.language == "c++" else ".c"
    return [f"{setting.variant.folder}/translated/{module.name}{ending}", *module.sources]


def _object(setting: Setting, source: str) -> str:
    return f"{setting.variant.folder}/objects/{source.removeprefix(setting.variant.folder + '/')}.o"


def _translate(setting: Setting, module: Module, output: str) -> str:
    checks = setting.variant.checks_bounds
    directives = {"boundscheck": checks, "wraparound": checks, "initializedcheck": checks, "cdivision": True}
    options = ["-3", "-I", "ext", "--module-name", module.name, *setting.variant.translate]
    options += [word for name, value in directives.items() for word in ("-X", f"{name}={value}")]
    options += ["--cplus"] if module.language == "c++" else []
    needed = _escaped(_from_root(setting.python.cython))
    pxd = Path(module.pyx).with_suffix(".pxd")
    if pxd.is_file():  # a new one is not in the list of the last translation
        needed += f" {pxd}"
    return f"build {output}: translate {module.pyx} | {needed}\n  options = {' '.join(options)}\n"


def _binding(output: str) -> str:
    needed = " ".join(f"ext/llama/{name}" for name in BINDING_INPUTS)
    return f"build {output}: binding | {needed}\n"


def _compile(setting: Setting, module: Module, source: str) -> str:
    flags = ""
    if module.is_binding:
        flags = " ".join([*BINDING_FLAGS, f"-I{setting.include}"])
    rule = "cc" if source.endswith(".c") else "cxx"
    return f"build {_object(setting, source)}: {rule} {source}\n" + (f"  flags = {flags}\n" if flags else "")


def _from_root(path: str) -> str:
    """Return a path in the checkout relative to its root, so that a checkout that was moved is not built again."""
    return path.removeprefix(f"{ROOT}/")


def _escaped(path: str) -> str:
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")
