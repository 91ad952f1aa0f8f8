// Dialogs: native <dialog> elements, which keep the focus inside and restore it afterwards.

import { button, iconButton } from "./buttons.js";
import { h, uniqueId } from "./dom.js";

/** Open a dialog with a title; `build(close)` returns its content. Resolves with what `close` was given. */
export function openDialog(title, build, { wide = false } = {}) {
  return new Promise((resolve) => {
    const id = uniqueId("dialog");
    let result;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    const dialog = h(
      wide ? "dialog.wide" : "dialog",
      { "aria-labelledby": id },
      h(
        "header",
        {},
        h("h2", { id }, title),
        iconButton("close", "Close", () => close()),
      ),
    );
    dialog.append(build(close));
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) close(); // the click was on the backdrop
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask whether to do something that cannot be undone. */
export async function confirmed(title, text, action) {
  return Boolean(
    await openDialog(title, (close) =>
      h(
        "div.dialog-body",
        {},
        h("p", {}, text),
        h(
          "div.dialog-actions",
          {},
          button("Cancel", () => close(false)),
          button(action, () => close(true), { style: "danger", autofocus: true }),
        ),
      ),
    ),
  );
}

/** Ask for a line of text; return it, or null. */
export async function askText(title, label, value, action) {
  const answer = await openDialog(title, (close) => {
    const id = uniqueId("field");
    const input = h("input", { id, type: "text", value, autofocus: true, maxlength: "200" });
    const submit = (event) => {
      event.preventDefault();
      if (input.value.trim()) close(input.value.trim());
    };
    return h(
      "form.dialog-body",
      { onsubmit: submit },
      h("label.field", { for: id }, h("span", {}, label), input),
      h(
        "div.dialog-actions",
        {},
        button("Cancel", () => close()),
        button(action, null, { style: "primary", type: "submit" }),
      ),
    );
  });
  return answer ?? null;
}
