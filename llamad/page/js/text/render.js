// Turns Markdown into DOM nodes. Text becomes text nodes and a few known elements, never HTML.
// Images from other hosts are not loaded; they become links.

import { h } from "../base/dom.js";
import { copyButton } from "../base/copy.js";
import { parseBlocks } from "./blocks.js";
import { highlight } from "./highlight.js";

/** Return the nodes of a whole Markdown text. */
export function renderMarkdown(text) {
  return parseBlocks(text).map(renderBlock);
}

/** Return the element of one block. */
export function renderBlock(block) {
  return BLOCKS[block.type](block);
}

const BLOCKS = {
  paragraph: (block) => h("p", {}, renderInline(block.children)),
  // Headings of a message are below the page's own headings.
  heading: (block) => h(`h${Math.min(block.level + 2, 6)}.level-${block.level}`, {}, renderInline(block.children)),
  rule: () => h("hr"),
  quote: (block) => h("blockquote", {}, block.children.map(renderBlock)),
  code: renderCode,
  list: renderList,
  table: renderTable,
};

function renderCode(block) {
  const code = h("code", {}, block.isClosed ? runs(block) : block.text);
  const bar = h(
    "div.code-bar",
    {},
    h("span", {}, block.language || "text"),
    copyButton(() => code.textContent, "Copy code"),
  );
  return h("div.code", {}, bar, h("pre", { tabindex: "0", role: "group", "aria-label": "Code" }, code));
}

function runs(block) {
  return highlight(block.text, block.language).map((run) =>
    run.kind ? h(`span.hl-${run.kind}`, {}, run.text) : run.text,
  );
}

function renderList(list) {
  const items = list.items.map((item) => {
    const children = item.children.flatMap((block) =>
      block.type === "paragraph" && !list.isLoose ? renderInline(block.children) : [renderBlock(block)],
    );
    if (item.isDone === null) return h("li", {}, children);
    const box = h("input", {
      type: "checkbox",
      checked: item.isDone,
      disabled: true,
      "aria-label": item.isDone ? "Done" : "To do",
    });
    return h("li.task", {}, box, " ", children);
  });
  return list.isOrdered ? h("ol", list.start === 1 ? {} : { start: String(list.start) }, items) : h("ul", {}, items);
}

function renderTable(table) {
  const row = (tag, cells) =>
    h(
      "tr",
      {},
      cells.map((cell, at) => h(table.align[at] ? `${tag}.align-${table.align[at]}` : tag, {}, renderInline(cell))),
    );
  return h(
    "div.table",
    { tabindex: "0", role: "group", "aria-label": "Table" },
    h(
      "table",
      {},
      h("thead", {}, row("th", table.head)),
      h(
        "tbody",
        {},
        table.rows.map((cells) => row("td", cells)),
      ),
    ),
  );
}

function renderInline(nodes) {
  return nodes.map((node) => {
    if (node.type === "text") return node.value;
    if (node.type === "break") return h("br");
    if (node.type === "code") return h("code", {}, node.value);
    if (node.type === "link") return renderLink(node);
    return h(node.type, {}, renderInline(node.children)); // em, strong, del
  });
}

function renderLink(node) {
  const attributes = {
    href: node.address,
    rel: "noopener noreferrer",
    target: "_blank",
    referrerpolicy: "no-referrer",
  };
  const words = renderInline(node.children);
  return node.isImage ? h("a.image-link", attributes, "Image: ", words) : h("a", attributes, words);
}
