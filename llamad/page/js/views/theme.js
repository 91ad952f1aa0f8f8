// The choice of light or dark: the system's, unless a person chose. early.js applies it before the page is drawn.

import { announce } from "../base/announce.js";
import { fill, h } from "../base/dom.js";
import { icon } from "../base/icons.js";
import { preferences } from "../data/preferences.js";

const THEMES = [
  { name: "system", label: "Theme: as the system", icon: "auto" },
  { name: "light", label: "Theme: light", icon: "sun" },
  { name: "dark", label: "Theme: dark", icon: "moon" },
];

function apply(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

/** Return a button that cycles through the themes. */
export function themeButton() {
  const element = h("button.icon-button", { type: "button" });
  const show = () => {
    const theme = THEMES.find((one) => one.name === preferences.get("theme", "system")) ?? THEMES[0];
    element.setAttribute("aria-label", theme.label);
    element.title = theme.label;
    fill(element, icon(theme.icon));
    return theme;
  };
  element.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(show()) + 1) % THEMES.length];
    preferences.set("theme", next.name);
    apply(next.name);
    announce(show().label);
  });
  show();
  return element;
}
