// Asks for an API key.

import { button } from "../base/buttons.js";
import { openDialog } from "../base/dialogs.js";
import { h, uniqueId } from "../base/dom.js";

/** Ask for a key; return {key, isKept}, or null. `isWrong` means that the last one was refused. */
export async function askKey(isWrong) {
  const answer = await openDialog("API key", (close) => {
    const id = uniqueId("key");
    const note = uniqueId("note");
    const input = h("input", {
      id,
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      autofocus: true,
      "aria-describedby": note,
    });
    const keeps = h("input", { type: "checkbox" });
    const submit = (event) => {
      event.preventDefault();
      if (input.value.trim()) close({ key: input.value.trim(), isKept: keeps.checked });
    };
    return h(
      "form.dialog-body",
      { onsubmit: submit },
      h(
        "p",
        { id: note },
        isWrong
          ? "The server did not accept this key. Enter another one."
          : "This server asks for a key. Whoever runs it has set one with --api-key.",
      ),
      h("label.field", { for: id }, h("span", {}, "Key"), input),
      h("label.check", {}, keeps, h("span", {}, "Keep it in this browser, not only in this tab")),
      h(
        "div.dialog-actions",
        {},
        button("Cancel", () => close()),
        button("Use key", null, { style: "primary", type: "submit" }),
      ),
    );
  });
  return answer ?? null;
}
