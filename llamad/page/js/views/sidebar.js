// The list of conversations, and the links to the other views.

import { announce } from "../base/announce.js";
import { button, iconButton } from "../base/buttons.js";
import { askText, confirmed, openDialog } from "../base/dialogs.js";
import { fill, h } from "../base/dom.js";
import { saveFile } from "../base/files.js";
import { period } from "../base/format.js";
import { icon } from "../base/icons.js";
import * as library from "../data/library.js";

const TOOLS = [
  { path: "completion", label: "Completion", icon: "text" },
  { path: "infill", label: "Infill", icon: "infill" },
  { path: "live", label: "Live", icon: "live" },
];

export class Sidebar {
  /** `go(path)` shows a view; `extra` are buttons at the bottom. */
  constructor(go, extra) {
    this.go = go;
    this.path = "";
    this.listElement = h("div.conversations");
    this.tools = h("ul.tools");
    this.picker = h("input", {
      type: "file",
      accept: "application/json,.json",
      hidden: true,
      "aria-label": "Conversations to import",
    });
    this.picker.addEventListener("change", () => this.importFile());
    this.element = h(
      "nav.sidebar",
      { "aria-label": "Conversations and tools", id: "sidebar" },
      h("div.brand", {}, h("span.brand-mark", { "aria-hidden": "true" }), h("span", {}, "llamad")),
      button("New chat", () => go("chat"), { icon: "add", style: "new-chat" }),
      this.tools,
      this.listElement,
      h(
        "div.sidebar-foot",
        {},
        iconButton("upload", "Import conversations", () => this.picker.click()),
        iconButton("download", "Export all conversations", () => this.exportAll()),
        extra,
      ),
      this.picker,
    );
    library.list.watch(() => this.draw());
  }

  /** Mark the view that is shown. */
  setPath(path) {
    this.path = path;
    this.draw();
  }

  draw() {
    const current = (path) => (path === this.path ? "page" : null);
    fill(
      this.tools,
      TOOLS.map((tool) =>
        h(
          "li",
          {},
          h("a", { href: `#/${tool.path}`, "aria-current": current(tool.path) }, icon(tool.icon), tool.label),
        ),
      ),
    );
    const groups = groupByPeriod(library.list.value);
    fill(
      this.listElement,
      [...groups].map(([title, entries]) => [
        h("h2", {}, title),
        h(
          "ul",
          {},
          entries.map((entry) => this.entryElement(entry)),
        ),
      ]),
    );
  }

  entryElement(entry) {
    const path = `chat/${entry.id}`;
    const title = entry.title || "New chat";
    const current = path === this.path ? "page" : null;
    return h(
      "li",
      {},
      h("a", { href: `#/${path}`, "aria-current": current, title }, title),
      iconButton("more", `Options of ${title}`, () => this.openOptions(entry)),
    );
  }

  async openOptions(entry) {
    const choice = await openDialog(entry.title, (close) =>
      h(
        "div.dialog-body.menu",
        {},
        button("Rename", () => close("rename"), { icon: "edit", autofocus: true }),
        button("Export as JSON", () => close("export"), { icon: "download" }),
        button("Delete", () => close("delete"), { icon: "trash", style: "danger-quiet" }),
      ),
    );
    if (choice === "rename") {
      const title = await askText("Rename", "Title", entry.title, "Rename");
      if (title) await library.rename(entry.id, title);
    } else if (choice === "export") {
      saveFile("conversation.json", await library.exportText(entry.id));
    } else if (
      choice === "delete" &&
      (await confirmed("Delete conversation", `“${entry.title}” is removed for good.`, "Delete"))
    ) {
      await library.remove(entry.id);
      announce("Deleted");
      if (this.path === `chat/${entry.id}`) this.go("chat");
    }
  }

  async exportAll() {
    saveFile("conversations.json", await library.exportText());
  }

  async importFile() {
    const [file] = this.picker.files;
    this.picker.value = "";
    if (!file) return;
    let words;
    try {
      const n = await library.importText(await file.text());
      words = n === 1 ? "One conversation was imported." : `${n} conversations were imported.`;
    } catch (error) {
      words = error.message;
    }
    await openDialog("Import", (close) =>
      h(
        "div.dialog-body",
        {},
        h("p", {}, words),
        h(
          "div.dialog-actions",
          {},
          button("Close", () => close(), { style: "primary" }),
        ),
      ),
    );
  }
}

function groupByPeriod(entries) {
  const groups = new Map();
  for (const entry of entries) {
    const title = period(entry.updated, Date.now());
    if (groups.has(title)) groups.get(title).push(entry);
    else groups.set(title, [entry]);
  }
  return groups;
}
