// Buttons: an icon with a name that is also its tooltip, or words with an icon.

import { h } from "./dom.js";
import { icon } from "./icons.js";

/** Return a button that only shows an icon. */
export function iconButton(name, label, onclick, attributes = {}) {
  return h(
    "button.icon-button",
    { type: "button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name),
  );
}

/** Return a button with words; `style` is primary, quiet, danger or "". */
export function button(label, onclick, { style = "", icon: name = "", ...attributes } = {}) {
  const spec = style ? `button.button.${style}` : "button.button";
  return h(spec, { type: "button", onclick, ...attributes }, name && icon(name), h("span", {}, label));
}
