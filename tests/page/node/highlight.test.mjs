// Code to coloured runs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { highlight } from "../../../llamad/page/js/text/highlight.js";

const kindOf = (code, language, text) => highlight(code, language).find((run) => run.text.trim() === text)?.kind;
const whole = (runs) => runs.map((run) => run.text).join("");

test("Python", () => {
  const code = 'def greet(name):  # says hello\n    return f"Hello {name}" * 2\n';
  assert.equal(kindOf(code, "python", "def"), "keyword");
  assert.equal(kindOf(code, "python", "greet"), "call");
  assert.equal(kindOf(code, "python", "# says hello"), "comment");
  assert.equal(kindOf(code, "python", '"Hello {name}"'), "string");
  assert.equal(kindOf(code, "python", "2"), "number");
  assert.equal(whole(highlight(code, "python")), code);
});

test("other families", () => {
  assert.equal(kindOf("let a = 1; // b", "ts", "// b"), "comment");
  assert.equal(kindOf("SELECT a -- b", "sql", "SELECT"), "keyword");
  assert.equal(kindOf("<p class='a'>", "html", "<p"), "tag");
  assert.equal(kindOf("+a\n-b\n", "diff", "-b"), "removed");
});

test("an unknown language, and very long code, stay plain", () => {
  assert.deepEqual(highlight("a b", "klingon"), [{ kind: "", text: "a b" }]);
  assert.equal(highlight("1 ".repeat(100_000), "python").length, 1);
});

test("hostile code loses nothing", () => {
  for (const part of ['"', "'", "/*", "`", '"""', "\\", '"\\', "#", "1e", "<!--", "a(", "\u{1f999}"]) {
    for (const language of ["c", "python", "shell", "html", "sql", "json", "diff"]) {
      const code = part.repeat(30_000 / part.length);
      assert.equal(whole(highlight(code, language)), code);
    }
  }
});
