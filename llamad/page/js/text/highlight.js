// Highlights code: splits a text into runs {kind, text}. It knows comments, strings, numbers, keywords and calls.
// Pure, and linear: each character is read once.

import { familyOf } from "./languages.js";

const TEXT_MAX = 100_000; // longer code stays plain
const NUMBER = /0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?\w*/y;
const WORD = /[A-Za-z_$][\w$]*/y;
const REST = /\s+|[^\w\s]/y;

/** Return runs of a code text; kind is comment, string, number, keyword, call, tag, added, removed or "" (plain). */
export function highlight(text, language) {
  const family = text.length <= TEXT_MAX ? familyOf(language) : null;
  if (!family) return [{ kind: "", text }];
  return family.lines ? diffLines(text) : tokens(text, family);
}

function tokens(text, family) {
  const rules = [
    ...family.comments.map((pattern) => [pattern, "comment"]),
    ...family.strings.map((pattern) => [pattern, "string"]),
    ...(family.tags ? [[family.tags, "tag"]] : []),
    [NUMBER, "number"],
    [WORD, "word"],
    [REST, ""],
  ];
  const runs = [];
  let at = 0;
  while (at < text.length) {
    let length = 1;
    let kind = "";
    for (const [pattern, name] of rules) {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      if (!match) continue;
      length = match[0].length;
      kind = name === "word" ? kindOfWord(match[0], text, at + length, family) : name;
      break;
    }
    add(runs, kind, text.slice(at, at + length));
    at += length;
  }
  return runs;
}

function kindOfWord(word, text, end, family) {
  if (family.keywords.has(family.ignoresCase ? word.toLowerCase() : word)) return "keyword";
  return text[end] === "(" ? "call" : "";
}

function diffLines(text) {
  const runs = [];
  for (const line of text.split(/(?<=\n)/)) {
    add(
      runs,
      line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@") ? "comment" : "",
      line,
    );
  }
  return runs;
}

function add(runs, kind, text) {
  const last = runs.at(-1);
  if (last && last.kind === kind) last.text += text;
  else runs.push({ kind, text });
}
