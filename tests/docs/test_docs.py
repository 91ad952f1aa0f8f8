"""Owns the checks of README.md, CONTRIBUTING.md, … and docs/ against the code: what they name exists, and each endpoint
and metric is documented. docs/flags.md and docs/options.md are generated, and checked beside their tables."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.loops.routes import all_routes

import llamad
from llamad.flags.help import default_text
from llamad.flags.table import TABLE
from recipe import pin

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINKED = [*PAGES, *(ROOT / name / "README.md" for name in ("bench", "examples", "vendor/llama.cpp"))]
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
NOT_OURS = {"llama.h"}
UNITS = {path.name for path in (ROOT / "deploy" / "systemd").iterdir()}
# Paths that are no endpoints.
SYSTEM = ("/etc/", "/home", "/opt/", "/root", "/tmp", "/var/")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"([\w.+-]+(?:/[\w.+-]+)*/?)(?::(\w+))?")
SOURCE = re.compile(r"[\w-]+\.(?:py|pyx|pxd|pyi|h|hpp|c|cpp|md|toml)")
MODULE = re.compile(r"(?:llamad|bench)(?:\.\w+)+")
ENDPOINT = re.compile(r"(?:(GET|POST) )?(/[a-z][\w/{}-]*)(?:\?.*)?")
GENERATED = {"families.md", "flags.md", "options.md"}
LINE_MAX = 126
# How a topic of bench/RESULTS.md begins: date, commit, model, machine.
MEASURED = re.compile(r"^\*\*20\d\d-\d\d-\d\d, [^;]+;[^;]+;[^*]+\*\*", re.MULTILINE)
METRIC = re.compile(r"llama(?:cpp|d):(?!cuda\b)\w+")  # llamad:cuda is an image


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def spans(page: Path) -> list[str]:
    """What stands in backticks, without fenced blocks."""
    return [span.replace("\\|", "|") for span in SPAN.findall(FENCE.sub("", text(page)))]


def code(page: Path) -> str:
    """All code of a page: fenced blocks and what stands in backticks."""
    return "\n".join([*FENCE.findall(text(page)), *spans(page)])


def has_symbol(path: Path, name: str) -> bool:
    defined = rf"^\s*(?:async )?(?:def|class|cdef|cpdef|ctypedef)\b[^\n(=]*\b{name}\b|^\s*{name}\s*[:=]"
    return path.is_file() and re.search(defined, text(path), re.MULTILINE) is not None


def is_command(name: str) -> bool:
    """Return whether `python -m` can run the module: a package with a __main__, or a file that checks its name."""
    file = module_file(name)
    return module_file(f"{name}.__main__") is not None or (file is not None and '"__main__"' in text(file))


def module_file(name: str) -> Path | None:
    stem = name.replace(".", "/")
    candidates = (ROOT / f"{stem}.py", ROOT / stem / "__init__.py", ROOT / "ext" / f"{stem}.pyx")
    return next((path for path in candidates if path.exists()), None)


def module_exists(name: str) -> bool:
    if module_file(name) is not None:
        return True
    parent, _, symbol = name.rpartition(".")
    path = module_file(parent)
    return path is not None and has_symbol(path, symbol)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text(page)), re.MULTILINE)}


def test_the_readme_is_short() -> None:
    assert len(text(ROOT / "README.md").splitlines()) <= 200


def test_the_index_lists_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", text(ROOT / "docs" / "index.md"))) == pages


def test_the_changelog_knows_this_version() -> None:
    assert llamad.__version__ in text(ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("page", LINKED, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text(page))):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_code_spans_stay_on_one_line(page: Path) -> None:
    """Else the tests below do not see them."""
    for line in FENCE.sub("", text(page)).splitlines():
        assert line.count("`") % 2 == 0, line


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=ids)
def test_lines_are_short(page: Path) -> None:
    """Lines of tables and of code may be as long as they must be."""
    lines = FENCE.sub("", text(page)).splitlines()
    assert [line for line in lines if len(line) > LINE_MAX and not line.startswith("|")] == []


def test_results_say_when_and_where() -> None:
    """Each topic with a table names a date, a commit, a model and a machine, and a command."""
    topics = re.split(r"^##+ ", text(ROOT / "bench" / "RESULTS.md"), flags=re.MULTILINE)[1:]
    with_tables = {topic.partition("\n")[0]: topic for topic in topics if "\n| ---" in topic}
    assert len(with_tables) > 15
    for title in with_tables:
        assert MEASURED.search(with_tables[title]) is not None, title
        assert re.search(r"`(?:python|node|llamad|LLAMA_SERVER=|--)", with_tables[title]) is not None, title


def test_the_figures_of_the_readme_are_results() -> None:
    results = text(ROOT / "bench" / "RESULTS.md")
    rows = re.findall(
        r"^\| (\d+B, \d+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", text(ROOT / "README.md"), re.MULTILINE
    )
    assert len(rows) == 7
    for name, server, server_bs, llamad_, batched in rows:
        row = rf"^\| {name} streams? \| {batched} \| {server} \| {server_bs} \| {llamad_} \|"
        assert re.search(row, results, re.MULTILINE) is not None, name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_files_and_symbols_exist(page: Path) -> None:
    for span in spans(page):
        match = PATH.fullmatch(span)
        if match is None or match[1] in NOT_OURS:
            continue
        path, symbol = match[1], match[2]
        if ("/" in path and path.split("/")[0] in FOLDERS) or SOURCE.fullmatch(path):
            assert (ROOT / path).exists(), span
            assert symbol is None or has_symbol(ROOT / path, symbol), span


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_modules_and_commands_exist(page: Path) -> None:
    for name in (span for span in spans(page) if MODULE.fullmatch(span)):
        assert module_exists(name) or name in UNITS, name
    for name in re.findall(r"python -m ([\w.]+)", code(page)):
        assert is_command(name), name
    targets = set(re.findall(r"^([a-z][\w -]*):", text(ROOT / "Makefile"), re.MULTILINE))
    known = {name for target in targets for name in target.split()}
    for name in re.findall(r"\bmake ([a-z][\w-]*)", code(page)):
        assert name in known, f"make {name}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_flags_exist(page: Path) -> None:
    named = [span.split()[0].split("=")[0] for span in spans(page) if re.match(r"--?[a-zA-Z]", span)]
    for line in re.findall(r"^.*(?:bin/llamad |ARGS=\"-).*$", code(page), re.MULTILINE):
        named += re.findall(r"(?<=[ \"])--?[a-zA-Z][\w-]*", line)
    for name in named:
        assert name in TABLE.by_name or name.startswith("-D"), name


def test_defaults_in_prose_are_those_of_the_flags() -> None:
    """A default is written `--flag` (8 GiB), or is the second column of a table of flags."""
    prose = "".join(FENCE.sub("", text(page)) for page in PAGES if page.name not in GENERATED)
    named = re.findall(r"`(--[\w-]+)`\s\(([\d,]+) (GiB|KB|MiB|tokens)\)", prose)
    named += re.findall(r"^\| `(--[\w-]+)` \| ([\d,]+)( )\|", prose, re.MULTILINE)
    assert len(named) > 6
    for name, number, unit in named:
        factor = {"GiB": 2**30, "KB": 2**10}.get(unit, 1)
        assert default_text(TABLE.by_name[name][0]) == str(int(number.replace(",", "")) * factor), name


@pytest.fixture(scope="module")
def routes() -> set[tuple[str, str]]:
    """Return every route of the app, its parameters without their names."""
    return {(route.method, unnamed(route.pattern)) for route in all_routes()}


def unnamed(pattern: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", pattern)


def test_the_api_page_lists_every_endpoint(routes: set[tuple[str, str]]) -> None:
    listed = [
        (method, unnamed(path))
        for method, paths in re.findall(
            r"^\| (GET|POST|DELETE) \| ([^|]+) \|", text(ROOT / "docs" / "api.md"), re.M
        )
        for path in SPAN.findall(paths)
    ]
    assert sorted(listed) == sorted(routes)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_endpoints_exist(page: Path, routes: set[tuple[str, str]]) -> None:
    paths = {path for _, path in routes}
    for span in spans(page):
        match = ENDPOINT.fullmatch(span)
        if match is None or span.startswith(SYSTEM):
            continue
        method, path = match[1], unnamed(match[2])
        assert (method, path) in routes if method else path in paths, span


def test_the_page_of_metrics_lists_every_one() -> None:
    page = text(ROOT / "docs" / "metrics.md")
    listed = re.findall(rf"^\| `({METRIC.pattern})` \|", page, re.MULTILINE)
    source = "".join(text(path) for path in (ROOT / "llamad" / "api").rglob("*.py"))
    known = set(re.findall(rf'"({METRIC.pattern})"', source))
    assert len(known) > 50
    assert sorted(listed) == sorted(known)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_metrics_exist(page: Path) -> None:
    known = set(METRIC.findall(text(ROOT / "docs" / "metrics.md")))
    for name in METRIC.findall(code(page)):
        assert name in known, name


def test_the_recipe_without_a_network_names_every_package() -> None:
    page = text(ROOT / "vendor" / "llama.cpp" / "README.md")
    download = re.search(r"^pip download ((?:[^\n]*\\\n)*[^\n]*)", page, re.MULTILINE)
    assert download is not None
    project = tomllib.loads(text(ROOT / "pyproject.toml"))
    needed = {*project["build-system"]["requires"], *project["project"]["dependencies"]}
    names = {re.split(r"[<>=~!\[; ]", one)[0] for one in needed}
    assert names - set(download[1].split()) == set()
    assert f" {pin.LLAMA_CPP.package}=={pin.LLAMA_CPP.version}\n" in page


def test_the_page_of_sizes_computes_its_tables() -> None:
    page = text(ROOT / "docs" / "sizing.md")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    caches = [row for row in rows if len(row) == 8 and row[1].isdigit()]
    weights = [row for row in rows if row[0].endswith(" billion")]
    assert (len(caches), len(weights)) == (7, 6)
    for row in caches:
        layers, heads, size, n_bytes = (int(cell.replace(",", "")) for cell in row[1:5])
        assert n_bytes == 2 * layers * heads * size * 2
        assert row[5:] == [f"{n_bytes * n / 2**30:.1f} GiB" for n in (8192, 32768, 131072)]
    for row in weights:
        n = float(row[0].split()[0]) * 1e9
        assert row[1:] == [f"{n * bits / 8 / 2**30:.1f} GiB" for bits in (4.85, 8.5, 16)]
    of_token = {row[0]: int(row[4].replace(",", "")) for row in caches}
    together = [row for row in rows if len(row) == 8 and re.fullmatch(r"[\d.]+", row[1]) and "." in row[1]]
    assert [row[0] for row in together] == list(of_token)
    for row in together:
        n, n_bytes = float(row[1]) * 1e9, of_token[row[0]]
        sizes = [n * bits / 8 + n_bytes * n_ctx for bits in (4.85, 8.5) for n_ctx in (8192, 32768, 131072)]
        assert row[2:] == [f"{size / 2**30:.1f}" for size in sizes]
