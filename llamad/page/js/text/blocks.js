// Parses Markdown blocks: turns text into a tree of blocks. Pure, and linear in the text's length: a block inside
// another is read again, but only up to DEPTH_MAX. It never fails: whatever is not Markdown is a paragraph.

import { parseInline } from "./inline.js";

const DEPTH_MAX = 12;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,11})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|)$/;
const COLUMN = /^:?-+:?$/;
const UNDERLINE = /^ {0,3}(?:=+|-{2,})[ \t]*$/;
const TASK = /^\[([ xX])\][ \t]+/;

/**
 * Return the blocks of a text. Each has a `type` (paragraph, heading, code, quote, list, table, rule) and `line`, the
 * number of its first line.
 */
export function parseBlocks(text) {
  return parseLines(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function parseLines(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const reader = depth < DEPTH_MAX ? readerOf(lines, at) : readParagraph;
    const [block, end] = reader(lines, at, depth);
    block.line = at;
    blocks.push(block);
    at = end;
  }
  return blocks;
}

/** Return which block begins at a line. */
function readerOf(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return readCode;
  if (HEADING.test(line)) return readHeading;
  if (RULE.test(line)) return readRule;
  if (QUOTE.test(line)) return readQuote;
  if (ITEM.test(line)) return readList;
  if (isTable(lines, at)) return readTable;
  return readParagraph;
}

function isBlank(line) {
  return line.trim() === "";
}

function isTable(lines, at) {
  const rule = lines[at + 1];
  if (rule === undefined || !lines[at].includes("|") || !rule.includes("-")) return false;
  const columns = cells(rule);
  return columns.every((column) => COLUMN.test(column)) && cells(lines[at]).length === columns.length;
}

/** Return whether a line ends the paragraph before it. A numbered list only does if it begins with 1, so that a line
 * may begin with "1986.". */
function interrupts(lines, at) {
  const line = lines[at];
  const item = ITEM.exec(line);
  if (item && item[4] && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1)) return true;
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isTable(lines, at);
}

function readCode(lines, at) {
  const [, fence, info] = FENCE.exec(lines[at]);
  const indent = lines[at].search(/\S/);
  const body = [];
  let end = at + 1;
  let isClosed = false;
  for (; end < lines.length && !isClosed; end += 1) {
    const line = lines[end];
    isClosed = isClosing(line, fence);
    if (!isClosed) body.push(indent ? line.replace(new RegExp(`^ {0,${indent}}`), "") : line);
  }
  const language = info.trim().split(/[\s{]/, 1)[0].toLowerCase();
  return [{ type: "code", language, text: body.join("\n"), isClosed }, end];
}

function isClosing(line, fence) {
  const mark = line.trim();
  return mark.length >= fence.length && line.search(/\S/) < 4 && mark === fence[0].repeat(mark.length);
}

function readHeading(lines, at) {
  const [, marks, words = ""] = HEADING.exec(lines[at]);
  let end = words.length;
  while (words[end - 1] === "#" || words[end - 1] === " " || words[end - 1] === "\t") end -= 1;
  const cut = /[ \t]/.test(words[end] ?? "") || end === 0 ? words.slice(0, end) : words;
  return [{ type: "heading", level: marks.length, children: parseInline(cut.trim()) }, at + 1];
}

function readRule(_, at) {
  return [{ type: "rule" }, at + 1];
}

function readQuote(lines, at, depth) {
  const inside = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const isLazy = !QUOTE.test(lines[end]);
    if (isLazy && (isBlank(lines[end]) || isBlank(inside.at(-1)) || interrupts(lines, end))) break;
    inside.push(isLazy ? lines[end] : lines[end].replace(QUOTE, ""));
  }
  return [{ type: "quote", children: parseLines(inside, depth + 1) }, end];
}

/** Parse a list: items with the same kind of marker. Lines that are indented below an item belong to it. */
function readList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(first[2]);
  const kind = first[2].at(-1);
  const list = { type: "list", isOrdered, start: isOrdered ? parseInt(first[2], 10) : 1, isLoose: false, items: [] };
  let end = at;
  while (end < lines.length) {
    const mark = ITEM.exec(lines[end]);
    if (!mark || mark[2].at(-1) !== kind || RULE.test(lines[end])) break;
    const [item, next] = readItem(lines, end, mark, depth);
    list.items.push(item);
    end = next;
    let blank = end;
    while (blank < lines.length && isBlank(lines[blank])) blank += 1;
    const another = blank > end && blank < lines.length ? ITEM.exec(lines[blank]) : null;
    if (another && another[2].at(-1) === kind) {
      list.isLoose = true;
      end = blank;
    }
  }
  return [list, end];
}

function readItem(lines, at, mark, depth) {
  const indent = mark[1].length;
  const width = indent + mark[2].length + Math.min(mark[3]?.length ?? 1, 4);
  const inside = [mark[4] ?? ""];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const begins = line.search(/\S/);
    if (begins < 0) {
      const next = lines[end + 1];
      if (next === undefined || isBlank(next) || next.search(/\S/) < Math.min(width, indent + 2)) break;
      inside.push("");
    } else if (begins >= Math.min(width, indent + 2)) {
      inside.push(line.slice(Math.min(begins, width)));
    } else if (ITEM.test(line) || isBlank(lines[end - 1]) || interrupts(lines, end)) {
      break;
    } else {
      inside.push(line); // the paragraph continues without its indentation
    }
  }
  const task = TASK.exec(inside[0]);
  if (task) inside[0] = inside[0].slice(task[0].length);
  const isDone = task ? task[1] !== " " : null;
  return [{ isDone, children: parseLines(inside, depth + 1) }, end];
}

/** Parse a table. Its rows have at most as many cells as its head, so that it does not grow beyond the text. */
function readTable(lines, at) {
  const head = cells(lines[at]);
  const align = cells(lines[at + 1]).map((rule) => {
    const [left, right] = [rule.startsWith(":"), rule.endsWith(":")];
    return left && right ? "center" : right ? "right" : "";
  });
  const rows = [];
  let end = at + 2;
  for (; end < lines.length && !isBlank(lines[end]) && lines[end].includes("|"); end += 1) {
    rows.push(cells(lines[end]).slice(0, head.length).map(parseInline));
  }
  return [{ type: "table", align, head: head.map(parseInline), rows }, end];
}

/** Return the cells of a row; a bar in a code span counts unless it is escaped, as on GitHub. */
function cells(line) {
  const texts = [];
  let cell = "";
  const row = line.trim();
  for (let at = row.startsWith("|") ? 1 : 0; at < row.length; at += 1) {
    if (row[at] === "\\" && row[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (row[at] === "|") {
      texts.push(cell.trim());
      cell = "";
    } else {
      cell += row[at];
    }
  }
  if (cell.trim() || !row.endsWith("|")) texts.push(cell.trim());
  return texts;
}

function readParagraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end])) {
    if (UNDERLINE.test(lines[end]) && depth < DEPTH_MAX) {
      const level = lines[end].includes("=") ? 1 : 2;
      const words = lines.slice(at, end).join("\n").trim();
      return [{ type: "heading", level, children: parseInline(words) }, end + 1];
    }
    if (depth < DEPTH_MAX && interrupts(lines, end)) break;
    end += 1;
  }
  const words = lines.slice(at, end).map((line) => line.trim());
  return [{ type: "paragraph", children: parseInline(words.join("\n")) }, end];
}
