// Copies text to the clipboard, even if the page has no clipboard API (plain http from another machine).

import { announce } from "./announce.js";
import { iconButton } from "./buttons.js";
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";

const SHOWN_MS = 1500;

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea.visually-hidden", { value: text, readOnly: true });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("no clipboard");
}

/** Return a button that copies what `read` returns, and shows whether that worked. */
export function copyButton(read, label) {
  const element = iconButton("copy", label, async () => {
    try {
      await copy(read());
      fill(element, icon("check"));
      announce("Copied");
    } catch {
      fill(element, icon("close"));
      announce("The browser did not allow copying");
    }
    setTimeout(() => fill(element, icon("copy")), SHOWN_MS);
  });
  return element;
}
