// Markdown to trees: what models write, and what hostile ones write.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseBlocks } from "../../../llamad/page/js/text/blocks.js";
import { parseInline, plainText } from "../../../llamad/page/js/text/inline.js";

/** A short form of inline nodes: marks around their text. */
function short(nodes) {
  return nodes
    .map((node) => {
      if (node.type === "text") return node.value;
      if (node.type === "break") return "⏎";
      if (node.type === "code") return `code(${node.value})`;
      const name = node.isImage ? "image" : node.type;
      if (node.type === "link") return `${name}(${short(node.children)} → ${node.address})`;
      return `${node.type}(${short(node.children)})`;
    })
    .join("");
}

const inline = (text) => short(parseInline(text));
const kinds = (text) => parseBlocks(text).map((block) => block.type);

const INLINE = [
  ["plain", "plain"],
  ["*a* _b_ **c** __d__ ~~e~~", "em(a) em(b) strong(c) strong(d) del(e)"],
  ["***both***", "em(strong(both))"],
  ["**a *b* c**", "strong(a em(b) c)"],
  ["snake_case_name and 2*3*4", "snake_case_name and 2em(3)4"],
  ["2 * 3 * 4, a ** b", "2 * 3 * 4, a ** b"],
  ["*not closed", "*not closed"],
  ["*a _b* c_", "em(a _b) c_"],
  ["`a*b*` and ``x ` y``", "code(a*b*) and code(x ` y)"],
  ["`not closed", "`not closed"],
  ["\\*a\\* \\q", "*a* \\q"],
  ["one\ntwo", "one⏎two"],
  ["[words](https://a.b/c_d_e)", "link(words → https://a.b/c_d_e)"],
  ['[**bold** words](<https://a.b>  "title")', "link(strong(bold) words → https://a.b)"],
  ["[wiki](https://a.b/x_(y))", "link(wiki → https://a.b/x_(y))"],
  ["[](https://a.b)", "link(https://a.b → https://a.b)"],
  ["![alt](https://a.b/i.png)", "image(alt → https://a.b/i.png)"],
  ["<https://a.b> <mailto:x@y.z>", "link(https://a.b → https://a.b) link(mailto:x@y.z → mailto:x@y.z)"],
  [
    "see https://a.b/c. And (http://d.e).",
    "see link(https://a.b/c → https://a.b/c). And (link(http://d.e → http://d.e)).",
  ],
  ["xhttps://a.b", "xhttps://a.b"],
  ["[a] (b) [c]", "[a] (b) [c]"],
  ["a]b", "a]b"],
];

for (const [text, wanted] of INLINE) test(`inline: ${text}`, () => assert.equal(inline(text), wanted));

const UNSAFE = [
  "javascript:alert(1)",
  "JaVaScRiPt:alert(1)",
  " javascript:alert(1)",
  "java\tscript:alert(1)",
  "\u0001javascript:alert(1)",
  "data:text/html,<script>alert(1)</script>",
  "vbscript:x",
  "file:///etc/passwd",
  "blob:https://a.b/c",
  "//a.b/c",
  "/slots",
  "https:a.b",
  "https://\u202ea.b",
];

for (const address of UNSAFE) {
  test(`no link to ${JSON.stringify(address)}`, () => {
    for (const text of [`[w](${address})`, `[w](<${address}>)`, `<${address}>`, `![w](${address})`]) {
      assert.ok(!inline(text).includes(`→ ${address}`), text);
      assert.ok(!/→ (?!https?:)/.test(inline(text)), text);
    }
  });
}

test("HTML is text", () => {
  assert.equal(inline("<b>x</b> <img src=x onerror=alert(1)>"), "<b>x</b> <img src=x onerror=alert(1)>");
});

test("blocks", () => {
  const text =
    "# Title\n\nWords\nmore\n\n- a\n- b\n\n1. x\n2. y\n\n> quoted\n\n---\n\n```py\ncode\n```\n\n|a|b|\n|-|-:|\n|1|2|\n";
  assert.deepEqual(kinds(text), ["heading", "paragraph", "list", "list", "quote", "rule", "code", "table"]);
});

test("headings", () => {
  const [first, second, third, fourth] = parseBlocks("# One #\n### Three\nUnder\n=====\n#no heading");
  assert.deepEqual([first.level, plainText(first.children)], [1, "One"]);
  assert.equal(second.level, 3);
  assert.deepEqual([third.level, plainText(third.children)], [1, "Under"]);
  assert.equal(fourth.type, "paragraph");
});

test("code", () => {
  const [closed] = parseBlocks("```python title\nif a:\n    b()\n```");
  assert.deepEqual([closed.language, closed.text, closed.isClosed], ["python", "if a:\n    b()", true]);
  const [open] = parseBlocks("~~~\na\n```\nb");
  assert.deepEqual([open.text, open.isClosed], ["a\n```\nb", false]);
  assert.deepEqual(kinds("````\n```\n````\nafter"), ["code", "paragraph"]);
});

test("lists", () => {
  const [list] = parseBlocks("3. a\n   - b\n   - c\n\n     more of c\n4. d\nlazy");
  assert.deepEqual([list.isOrdered, list.start, list.items.length], [true, 3, 2]);
  assert.deepEqual(
    list.items[0].children.map((block) => block.type),
    ["paragraph", "list"],
  );
  assert.equal(list.items[0].children[1].items[1].children.length, 2);
  assert.equal(plainText(list.items[1].children[0].children), "d lazy");
  const [tasks] = parseBlocks("- [x] done\n- [ ] open\n- plain");
  assert.deepEqual(
    tasks.items.map((item) => item.isDone),
    [true, false, null],
  );
});

test("code in a list", () => {
  const [list] = parseBlocks("1. Run:\n   ```sh\n   make\n   ```\n2. Done");
  assert.equal(list.items.length, 2);
  assert.equal(list.items[0].children[1].text, "make");
});

test("tables", () => {
  const [table] = parseBlocks("| a | b \\| c |\n|:-:|---|\n| 1 | 2 | 3 |\n| 4 |\n");
  assert.deepEqual(table.head.map(plainText), ["a", "b | c"]);
  assert.deepEqual(table.align, ["center", ""]);
  assert.deepEqual(
    table.rows.map((row) => row.map(plainText)),
    [["1", "2"], ["4"]],
  );
});

test("a paragraph is not a list or a table by accident", () => {
  assert.deepEqual(kinds("It was in\n1986. A year\na | b\nc"), ["paragraph"]);
});

/** The size of a tree, without recursion. */
function size(blocks) {
  let n = 0;
  const rest = [...blocks];
  while (rest.length) {
    const value = rest.pop();
    if (value === null || typeof value !== "object") continue;
    n += 1;
    for (const child of Object.values(value)) rest.push(child);
  }
  return n;
}

const repeat = (text) => (n) => text.repeat(Math.ceil(n / text.length));
const HOSTILE = {
  quotes: repeat(">"),
  "quotes with blanks": repeat("> "),
  "nested lists": repeat("- "),
  "indented lists": (n) => Array.from({ length: Math.sqrt(n) }, (_, at) => `${" ".repeat(at)}- x`).join("\n"),
  "quotes in lines": (n) => Array.from({ length: Math.sqrt(n) }, (_, at) => ">".repeat(at)).join("\n"),
  stars: repeat("*"),
  "stars and words": repeat("*a "),
  "closing stars": repeat("a* "),
  "both marks": repeat("*a_b "),
  emphasis: (n) => "*".repeat(n / 2) + "a" + "*".repeat(n / 2),
  "open brackets": repeat("["),
  "nested links": (n) => "[".repeat(n / 8) + "a" + "](http://b)".repeat(n / 8),
  "nested words": (n) => "[".repeat(n / 8) + "*a*`b`".repeat(n / 16) + "](x)".repeat(n / 8),
  "links without an end": repeat("[a]("),
  "angles without an end": repeat("[a](<b"),
  parentheses: (n) => `[a](${"(".repeat(n)}`,
  backticks: (n) => Array.from({ length: Math.sqrt(n) }, (_, at) => "`".repeat(at + 1)).join(" "),
  "single backticks": repeat("` "),
  addresses: repeat("http://"),
  "addresses behind words": repeat("ahttp://"),
  "long addresses": (n) => `http://a${"!".repeat(n)}`,
  "angle brackets": repeat("<http://"),
  images: repeat("!["),
  backslashes: repeat("\\"),
  blanks: (n) => `- ${" ".repeat(n)}x`,
  "blanks in a rule": (n) => `a|b\n-${" ".repeat(n)}x`,
  "blanks in a fence": (n) => `\`\`\`${" ".repeat(n)}\``,
  "hashes in a heading": (n) => `# ${"#".repeat(n)}x`,
  "stars in a rule": (n) => `${"* ".repeat(n / 2)}x`,
  "wide table": (n) => `${"|a".repeat(n / 6)}|\n${"|-".repeat(n / 6)}|\n${"|b\n".repeat(n / 6)}`,
  "long table": (n) => `|a|b|\n|-|-|\n${"|1|2|\n".repeat(n / 6)}`,
  "table heads": repeat("a|b\n-|x\n"),
  lines: repeat("a\n"),
  "empty lines": repeat("\n"),
  "fences without an end": repeat("```\n~~~\n"),
};

// What is not linear in the text's length takes minutes for these, and the run's own limit ends it.
for (const [name, make] of Object.entries(HOSTILE)) {
  test(`hostile: ${name}`, () => {
    const text = make(100_000);
    assert.ok(size(parseBlocks(text)) < 40 * text.length, "a tree as large as its text");
  });
}
