// The form in which a message is edited.

import { button } from "../base/buttons.js";
import { h } from "../base/dom.js";
import { growWithText } from "../base/text_area.js";

/** Return a form with a text; `done` is called with the new text, or null if it was cancelled. */
export function editForm(text, action, done) {
  const area = h("textarea", { value: text, "aria-label": "Message", rows: "2" });
  growWithText(area);
  const submit = (event) => {
    event?.preventDefault();
    if (area.value.trim()) done(area.value);
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      done(null);
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      submit(event);
    }
  });
  return h(
    "form.edit-form",
    { onsubmit: submit },
    area,
    h(
      "div.edit-actions",
      {},
      button("Cancel", () => done(null)),
      button(action, null, { style: "primary", type: "submit" }),
    ),
  );
}
