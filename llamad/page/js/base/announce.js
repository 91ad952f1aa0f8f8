// Announces lines to a screen reader, in one polite live region of index.html. Each line is a separate node, so that
// none replaces another that has not been read.

import { h } from "./dom.js";

const LINES_MAX = 20;

/** Announce a line, politely. */
export function announce(text) {
  const region = document.getElementById("announcements");
  region.append(h("p", {}, text));
  while (region.childElementCount > LINES_MAX) region.firstElementChild.remove();
}
