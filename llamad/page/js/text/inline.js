// Parses the Markdown inside a paragraph to a tree of plain objects. Pure, and linear in the text's length.
// It never fails: whatever is not Markdown is text.

import { safeAddress } from "./urls.js";

const DEPTH_MAX = 16;
const PARENS_MAX = 4;
const ADDRESS_MAX = 2048;
const SPECIAL = /[\\`*_~[\]!<\n]|https?:\/\//g;
const PUNCTUATION = /[!-/:-@[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u3003]/;
const BARE_ADDRESS = /https?:\/\/[^\s<>"'`\\^{}|]{1,2048}/y;
const TRAILING = ".,;:!?*_~";
const AUTO_LINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2048})>/y;

/** Return the nodes of a text: {type: "text" | "code" | "break" | "em" | "strong" | "del" | "link", …}. */
export function parseInline(text) {
  return new Parser(text).run();
}

class Parser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.pieces = []; // nodes, and delimiters that may still become emphasis
    this.brackets = []; // the indices in `pieces` of open brackets
    this.fences = null; // where runs of backticks begin, by length; made at the first one
  }

  run() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const match = SPECIAL.exec(text);
      const next = match ? match.index : text.length;
      if (next > this.at) this.addText(text.slice(this.at, next));
      this.at = next;
      if (match) this.special(match[0]);
    }
    return nest(resolveEmphasis(this.pieces));
  }

  special(mark) {
    if (mark.length > 1) this.bareAddress();
    else if (mark === "\\") this.escape();
    else if (mark === "`") this.code();
    else if (mark === "\n") this.lineBreak();
    else if (mark === "[") this.openBracket(1);
    else if (mark === "!") this.text[this.at + 1] === "[" ? this.openBracket(2) : this.literal(1);
    else if (mark === "]") this.closeBracket();
    else if (mark === "<") this.autoLink();
    else this.delimiter(mark);
  }

  addText(value) {
    const last = this.pieces.at(-1);
    if (last?.type === "text") last.value += value;
    else this.pieces.push({ type: "text", value });
  }

  literal(length) {
    this.addText(this.text.slice(this.at, this.at + length));
    this.at += length;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === "\n") {
      this.pieces.push({ type: "break" });
      this.at += 2;
    } else if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) {
      this.addText(next);
      this.at += 2;
    } else {
      this.literal(1);
    }
  }

  lineBreak() {
    this.pieces.push({ type: "break" }); // models use line ends on purpose, such as in verses and addresses
    this.at += 1;
  }

  code() {
    const length = runLength(this.text, this.at);
    const starts = this.closersOf(length);
    while (starts.length && starts.at(-1) <= this.at) starts.pop();
    if (!starts.length) return this.literal(length);
    const end = starts.pop();
    let value = this.text.slice(this.at + length, end).replaceAll("\n", " ");
    if (value.startsWith(" ") && value.endsWith(" ") && value.trim()) value = value.slice(1, -1);
    this.pieces.push({ type: "code", value });
    this.at = end + length;
  }

  closersOf(length) {
    if (!this.fences) {
      this.fences = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        const starts = this.fences.get(run[0].length) ?? [];
        starts.push(run.index);
        this.fences.set(run[0].length, starts);
      }
      for (const starts of this.fences.values()) starts.reverse(); // so that pop() returns the next one
    }
    return this.fences.get(length) ?? [];
  }

  openBracket(length) {
    this.brackets.push(this.pieces.length);
    this.pieces.push({ type: "bracket", isImage: length === 2, value: this.text.slice(this.at, this.at + length) });
    this.at += length;
  }

  closeBracket() {
    const opened = this.brackets.pop();
    if (opened === undefined) return this.literal(1);
    const target = linkTarget(this.text, this.at + 1);
    if (!target) return this.literal(1);
    const [bracket, ...inside] = this.pieces.splice(opened);
    const children = nest(resolveEmphasis(inside));
    this.at = target.end;
    this.brackets = []; // links cannot contain links, so no text is nested twice either
    const address = safeAddress(target.address);
    if (!address) {
      for (const child of children) this.pieces.push(child); // the address is not safe, so only its text stays
      return;
    }
    const isEmpty = !plainText(children).trim();
    const words = isEmpty ? [{ type: "text", value: bracket.isImage ? "image" : address }] : withoutLinks(children);
    this.pieces.push({ type: "link", address, isImage: bracket.isImage, children: words });
  }

  autoLink() {
    AUTO_LINK.lastIndex = this.at;
    const match = AUTO_LINK.exec(this.text);
    const address = match && safeAddress(match[1]);
    if (!address) return this.literal(1);
    this.pieces.push(link(address));
    this.at += match[0].length;
  }

  bareAddress() {
    if (/[\p{L}\p{N}]/u.test(this.text[this.at - 1] ?? " ")) return this.literal(4);
    BARE_ADDRESS.lastIndex = this.at;
    const match = BARE_ADDRESS.exec(this.text);
    const address = match ? withoutSentence(match[0]) : "";
    if (!safeAddress(address)) return this.literal(4);
    this.pieces.push(link(address));
    this.at += address.length;
  }

  delimiter(mark) {
    const { text } = this;
    let end = this.at;
    while (text[end] === mark) end += 1;
    const before = text[this.at - 1] ?? " ";
    const after = text[end] ?? " ";
    const opensBy = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const closesBy = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    const isWord = mark === "_" && opensBy && closesBy; // snake_case
    const count = end - this.at;
    this.pieces.push({
      type: "delimiter",
      mark,
      count,
      canOpen: opensBy && (!isWord || PUNCTUATION.test(before)) && (mark !== "~" || count === 2),
      canClose: closesBy && (!isWord || PUNCTUATION.test(after)) && (mark !== "~" || count === 2),
    });
    this.at = end;
  }
}

function link(address) {
  return { type: "link", address, isImage: false, children: [{ type: "text", value: address }] };
}

function runLength(text, start) {
  let end = start;
  while (text[end] === text[start]) end += 1;
  return end - start;
}

/** Parse `(address "title")` at `start`; return the address and where it ends, or null. Bounded in time. */
function linkTarget(text, start) {
  if (text[start] !== "(") return null;
  let at = start + 1;
  while (text[at] === " ") at += 1;
  const first = at;
  let address;
  if (text[at] === "<") {
    do at += 1;
    while (at < text.length && at - first < ADDRESS_MAX && !"<>\n".includes(text[at]));
    if (text[at] !== ">") return null;
    address = text.slice(first + 1, at);
    at += 1;
  } else {
    let depth = 0;
    for (; at < text.length && at - first <= ADDRESS_MAX; at += 1) {
      if (text[at] === "(") depth += 1;
      if (text[at] === ")" && depth-- === 0) break;
      if (depth > PARENS_MAX || text[at] === " " || text[at] === "\n") break;
    }
    address = text.slice(first, at);
  }
  const rest = /[ \n]{0,8}(?:"[^"\n]{0,500}"|'[^'\n]{0,500}')?[ \n]{0,8}\)/y;
  rest.lastIndex = at;
  const closed = rest.exec(text);
  return closed ? { address, end: at + closed[0].length } : null;
}

/** Cut punctuation at the end of an address, and brackets that it did not open: they belong to the sentence. */
function withoutSentence(address) {
  let end = address.length;
  while (TRAILING.includes(address[end - 1])) end -= 1;
  address = address.slice(0, end);
  let open = 0;
  for (let at = 0; at < address.length; at += 1) {
    if (address[at] === "(" || address[at] === "[") open += 1;
    if ((address[at] === ")" || address[at] === "]") && open-- === 0) return address.slice(0, at);
  }
  return address;
}

/**
 * Pair delimiters: a closer takes the last opener of its mark, so each is looked at once. The result has
 * {type: "open" | "close", tag} instead of delimiters.
 */
function resolveEmphasis(pieces) {
  const openers = { "*": [], _: [], "~": [] };
  const marks = new Map(); // piece → what its characters became
  for (const [order, piece] of pieces.entries()) {
    if (piece.type !== "delimiter") continue;
    piece.order = order;
    marks.set(piece, { before: [], after: [] });
    if (piece.canClose) closeWith(piece, openers, marks);
    if (piece.canOpen && piece.count > 0) openers[piece.mark].push(piece);
  }
  const result = [];
  for (const piece of pieces) {
    if (piece.type === "bracket") result.push({ type: "text", value: piece.value });
    else if (piece.type !== "delimiter") result.push(piece);
    else {
      const { before, after } = marks.get(piece);
      for (const mark of before) result.push(mark);
      if (piece.count > 0) result.push({ type: "text", value: piece.mark.repeat(piece.count) });
      for (const mark of after.reverse()) result.push(mark);
    }
  }
  return result;
}

function closeWith(closer, openers, marks) {
  const stack = openers[closer.mark];
  while (closer.count > 0 && stack.length) {
    const opener = stack.at(-1);
    const used = closer.mark === "~" || (opener.count >= 2 && closer.count >= 2) ? 2 : 1;
    const tag = closer.mark === "~" ? "del" : used === 2 ? "strong" : "em";
    opener.count -= used;
    closer.count -= used;
    marks.get(opener).after.push({ type: "open", tag });
    marks.get(closer).before.push({ type: "close", tag });
    if (opener.count === 0) stack.pop();
    // Openers of other marks inside this pair cannot close outside of it.
    for (const [mark, others] of Object.entries(openers)) {
      if (mark !== closer.mark) while (others.length && others.at(-1).order > opener.order) others.pop();
    }
  }
}

/** Turn opens and closes into nodes with children. Beyond DEPTH_MAX the emphasis is dropped and its text kept. */
function nest(pieces) {
  const root = { children: [] };
  const stack = [root];
  let dropped = 0;
  for (const piece of pieces) {
    if (piece.type === "open") {
      if (stack.length > DEPTH_MAX) dropped += 1;
      else {
        const node = { type: piece.tag, children: [] };
        stack.at(-1).children.push(node);
        stack.push(node);
      }
    } else if (piece.type === "close") {
      if (dropped > 0) dropped -= 1;
      else if (stack.length > 1) stack.pop();
    } else {
      stack.at(-1).children.push(piece);
    }
  }
  return root.children;
}

/** Remove links inside a link. */
function withoutLinks(nodes) {
  return nodes.flatMap((node) => {
    if (node.type === "link") return node.children;
    return node.children ? [{ ...node, children: withoutLinks(node.children) }] : [node];
  });
}

/** Return the text of nodes, without marks. */
export function plainText(nodes) {
  return nodes.map((node) => node.value ?? (node.children ? plainText(node.children) : " ")).join("");
}
