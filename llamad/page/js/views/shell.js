// The frame of the page: the sidebar, which is a drawer on a phone, the bar at the top, and the main part.

import { iconButton } from "../base/buttons.js";
import { h } from "../base/dom.js";

const isNarrow = matchMedia("(max-width: 800px)");

export class Shell {
  constructor(sidebar, tools, banner) {
    this.sidebar = sidebar;
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.menu = iconButton("menu", "Conversations", () => this.toggle(), {
      "aria-expanded": "false",
      "aria-controls": "sidebar",
    });
    this.menu.classList.add("menu-button");
    this.veil = h("div.veil", { onclick: () => this.closeSidebar() });
    this.content = h(
      "div.content",
      {},
      h("header.topbar", {}, h("h1.visually-hidden", {}, "llamad"), this.menu, tools),
      banner,
      this.main,
    );
    this.element = h("div.app", {}, sidebar, this.veil, this.content);
    this.skip = h("a.skip-link", { href: "#main", onclick: (event) => this.skipTo(event) }, "Skip to the content");
    isNarrow.addEventListener("change", () => this.setOpen(false));
    sidebar.addEventListener("click", (event) => {
      if (event.target.closest("a")) this.closeSidebar(); // even if its view is already shown
    });
    sidebar.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isOpen) this.closeSidebar();
    });
    this.setOpen(false);
  }

  skipTo(event) {
    event.preventDefault(); // the address names the view
    (this.main.querySelector("#composer, textarea") ?? this.main).focus();
  }

  toggle() {
    this.setOpen(!this.isOpen);
    if (this.isOpen) this.sidebar.querySelector("button, a").focus();
  }

  closeSidebar() {
    if (!this.isOpen) return;
    this.setOpen(false);
    this.menu.focus();
  }

  /** Update the drawer of a phone: a closed one cannot get the focus, and an open one hides the rest. */
  setOpen(isOpen) {
    this.isOpen = isOpen && isNarrow.matches;
    this.element.classList.toggle("sidebar-open", this.isOpen);
    this.sidebar.inert = isNarrow.matches && !this.isOpen;
    this.content.inert = this.isOpen;
    this.menu.setAttribute("aria-expanded", String(this.isOpen));
  }
}
