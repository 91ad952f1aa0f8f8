"""Markdown as DOM nodes: only known elements, whatever the text; and the same nodes when the text comes in pieces."""

import json

import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

TEXT = """# A *title*

Words with **bold**, `code` and <b>no HTML</b>.
Second line, https://example.org/x.

1. one
   - inner

     more
2. two

> quoted
> > deeper

| a | b |
|---|--:|
| 1 | `2` |

```python
def f(x):
    return "y"  # z
```

- [x] done

***
Under
===
end"""

ALLOWED = {
    *(
        "p",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "br",
        "blockquote",
        "ul",
        "ol",
        "li",
        "input",
        "em",
        "strong",
        "del",
        "a",
    ),
    *("code", "pre", "div", "span", "button", "svg", "path", "table", "thead", "tbody", "tr", "th", "td"),
}
IMPORT = "const {renderMarkdown} = await import(new URL('js/text/render.js', document.baseURI));"
HOSTILE = [
    "<script>alert(1)</script><iframe src=//evil></iframe><svg onload=alert(1)>",
    "[x](javascript:alert(1)) <javascript:alert(1)> ![x](data:text/html,1)",
    "```<img src=x onerror=alert(1)>\n<img src=x>\n```",
    "|<img src=x>|\n|-|\n|<style>*{display:none}</style>|",
    ">" * 10_000 + "deep",
    "- " * 10_000 + "deep",
    "*" * 10_000 + "deep" + "*" * 10_000,
    "|a" * 2_000 + "|\n" + "|-" * 2_000 + "|\n" + "|b|\n" * 2_000,
]


@pytest.fixture(scope="module")
def server():
    with Faked(Fake()) as started:
        yield started


def run(page, script, *arguments):
    return page.browser.run(f"return (async () => {{ {script} }})()", *arguments)


def test_only_known_elements(open_page, server):
    page = open_page(server.client)
    script = f"""{IMPORT}
    const root = document.createElement("div");
    for (const node of renderMarkdown(TEXT)) root.append(node);
    const found = [...root.querySelectorAll("*")];
    let depth = 0;
    for (const one of found) {{
      let n = 0;
      for (let node = one; node !== root; node = node.parentNode) n += 1;
      depth = Math.max(depth, n);
    }}
    const handlers = found.flatMap((e) => e.getAttributeNames()).filter((name) => /^on|^src|^style/.test(name));
    const links = [...root.querySelectorAll("a")].map((link) => link.protocol);
    return {{names: [...new Set(found.map((e) => e.localName))], handlers, links, depth}};"""
    for text in (TEXT, *HOSTILE):
        found = run(page, script.replace("TEXT", json.dumps(text)))
        assert set(found["names"]) <= ALLOWED
        assert found["handlers"] == []
        assert set(found["links"]) <= {"http:", "https:", "mailto:"}
        assert found["depth"] < 100


def test_a_text_in_pieces_becomes_the_same_and_settled_blocks_stay(open_page, server):
    page = open_page(server.client)
    script = f"""{IMPORT}
    const {{LiveMarkdown}} = await import(new URL("js/text/live_markdown.js", document.baseURI));
    const text = TEXT;
    const whole = document.createElement("div");
    whole.append(...renderMarkdown(text));
    for (const step of [1, 2, 3, 7, 50]) {{
      const root = document.createElement("div");
      const live = new LiveMarkdown(root);
      const seen = new Set();
      for (let end = step; end < text.length; end += step) {{
        live.text = text.slice(0, end);
        live.draw(false);
        seen.add(root.firstElementChild);
      }}
      live.finish(text);
      if (root.innerHTML !== whole.innerHTML) return [step, root.innerHTML, whole.innerHTML];
      if (!seen.has(root.firstElementChild)) return [step, "the first block was made again"];
    }}
    return "same";"""
    assert run(page, script.replace("TEXT", json.dumps(TEXT))) == "same"
    crlf = TEXT.replace("\n", "\r\n")
    assert run(page, script.replace("TEXT", json.dumps(crlf))) == "same"
