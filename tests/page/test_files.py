"""The page's files: all of them its own, nothing inline, small, and every import leads somewhere."""

import gzip
import re
from pathlib import Path

from support.imports import ROOT

PAGE = ROOT / "llamad" / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
LINES_MAX, BYTES_MAX = 500, 1_000_000


def name(path: Path) -> str:
    return str(path.relative_to(PAGE))


def test_the_page_is_small():
    assert sum(len(gzip.compress(path.read_bytes())) for path in FILES) < BYTES_MAX
    assert [name(path) for path in FILES if path.read_text().count("\n") > LINES_MAX] == []


def test_nothing_is_inline_and_nothing_comes_from_elsewhere():
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|<script type=\"module\">", page)
    for path in FILES:
        addresses = re.findall(r"(?:src|href)=\"([^\"]+)\"|url\(\"?([^)\"]+)", path.read_text())
        assert not [a or b for a, b in addresses if re.match(r"[a-z]+:|/", a or b)], name(path)


def test_no_script_makes_markup_or_code_of_text():
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert [name(path) for path in SCRIPTS if word in path.read_text()] == []


def test_imports_lead_to_files_and_files_say_what_they_own():
    for path in SCRIPTS:
        text = path.read_text()
        for target in re.findall(r"^import .* from \"([^\"]+)\"", text, re.MULTILINE):
            assert (path.parent / target).resolve().is_file(), (name(path), target)
        assert text.startswith(("//", "/*")), name(path)
        is_drawn = path.name == "icons.js"
        assert is_drawn or [line for line in text.splitlines() if len(line) > 120] == [], name(path)


def test_every_script_and_style_is_used():
    page = (PAGE / "index.html").read_text()
    reached = {(PAGE / part).resolve() for part in re.findall(r"(?:src|href)=\"([^\"]+)\"", page)}
    waiting = [path for path in reached if path.suffix == ".js"]
    while waiting:
        path = waiting.pop()
        for target in re.findall(r"from \"([^\"]+)\"", path.read_text()):
            linked = (path.parent / target).resolve()
            if linked not in reached:
                reached.add(linked)
                waiting.append(linked)
    assert {name(path) for path in FILES} - {name(path) for path in reached} == {
        "index.html",
        "completion.js",
    }


def test_every_icon_that_is_asked_for_is_there():
    drawn = set(re.findall(r"^  (\w+): \"M", (PAGE / "js/base/icons.js").read_text(), re.MULTILINE))
    text = "\n".join(path.read_text() for path in SCRIPTS)
    asked = set(re.findall(r"(?:iconButton|icon|fold)\(\s*\"(\w+)\"", text)) | set(
        re.findall(r"icon: \"(\w+)\"", text)
    )
    assert asked <= drawn
    assert drawn - asked - {"stop", "arrowUp"} == set()  # those two are chosen by a condition
