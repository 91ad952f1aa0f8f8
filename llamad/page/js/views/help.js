// The list of keyboard shortcuts.

import { openDialog } from "../base/dialogs.js";
import { h } from "../base/dom.js";

const KEYS = [
  ["Enter", "Send the message"],
  ["Shift + Enter", "A new line"],
  ["↑ in an empty field", "Edit the last message"],
  ["Esc", "Stop the answer; close a dialog"],
  ["/", "To the message field"],
  ["Alt + N", "A new chat"],
  ["Alt + S", "Settings"],
  ["Ctrl + Enter", "Send an edited message; start a completion or infill"],
  ["← →", "From token to token of a completion"],
  ["?", "This list"],
];

/** Show the list. */
export function openHelp() {
  return openDialog("Keyboard", () =>
    h(
      "div.dialog-body",
      {},
      h(
        "table.keys",
        {},
        h(
          "tbody",
          {},
          KEYS.map(([key, does]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, does))),
        ),
      ),
    ),
  );
}
