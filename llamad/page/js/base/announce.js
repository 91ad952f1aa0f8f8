// Owns what a screen reader is told beside the page: one polite live region in index.html. A line is a node of its own,
// so that none replaces another that has not been read.

import { h } from "./dom.js";

const LINES_MAX = 20;

/** Say a line, politely. */
export function announce(text) {
  const region = document.getElementById("announcements");
  region.append(h("p", {}, text));
  while (region.childElementCount > LINES_MAX) region.firstElementChild.remove();
}
