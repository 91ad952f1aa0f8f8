// The row of generated tokens, tinted by how sure the model was, and the menu of alternatives for each.
// One of them is in the tab order; arrow keys move from one to the next.

import { fill, h } from "../base/dom.js";
import { percent } from "../base/format.js";
import { sureness, visible } from "../data/token_text.js";

export class TokenStrip {
  /** `pick(at, other)` is called with the alternative that was chosen for a token. */
  constructor(pick) {
    this.pick = pick;
    this.tokens = [];
    this.element = h("div.tokens", { role: "group", "aria-label": "Generated tokens" });
    this.menu = h("div.token-menu", { popover: "auto", role: "dialog", "aria-label": "Alternatives" });
    this.element.addEventListener("click", (event) => this.open(event.target.closest(".token")));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.menu.addEventListener("keydown", (event) => this.onMenuKey(event));
  }

  /** Show these tokens. */
  set(tokens) {
    fill(this.element);
    this.tokens = [];
    for (const token of tokens) this.add(token);
  }

  /** Add a token at the end. */
  add(token) {
    if (!this.tokens.length) fill(this.element, this.menu);
    const isFirst = this.tokens.length === 0;
    this.tokens.push(token);
    const spec = `span.token.sure-${sureness(token.p)}${token.isPicked ? ".picked" : ""}`;
    const shown = token.text.includes("\ufffd") || !token.text ? visible(token) : token.text.replaceAll("\n", "⏎\n");
    // This is not a <button>, because that would break lines inside words.
    const element = h(
      spec,
      {
        role: "button",
        tabindex: isFirst ? "0" : "-1",
        "aria-haspopup": "dialog",
        title: `${visible(token)} · ${percent(token.p)}`,
      },
      shown,
    );
    this.menu.before(element);
  }

  items() {
    return [...this.element.querySelectorAll(".token")];
  }

  onKey(event) {
    if ((event.key === "Enter" || event.key === " ") && event.target.classList.contains("token") && !event.ctrlKey) {
      event.preventDefault();
      this.open(event.target);
      return;
    }
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !event.target.classList.contains("token")) return;
    event.preventDefault();
    const items = this.items();
    const at = Math.min(items.length - 1, Math.max(0, items.indexOf(event.target) + step));
    event.target.tabIndex = -1;
    items[at].tabIndex = 0;
    items[at].focus();
  }

  open(element) {
    if (!element) return;
    const at = this.items().indexOf(element);
    const token = this.tokens[at];
    for (const item of this.items()) item.tabIndex = -1;
    element.tabIndex = 0;
    fill(
      this.menu,
      h("p.muted", {}, `${visible(token)}: ${percent(token.p)}`),
      token.others.map((other) => this.choice(at, token, other)),
    );
    this.menu.showPopover();
    this.place(element);
    this.menu.querySelector("button")?.focus();
    this.opener = element;
  }

  choice(at, token, other) {
    const bar = h("span.bar", { "aria-hidden": "true" });
    bar.style.setProperty("--share", String(other.p));
    const choose = () => {
      this.menu.hidePopover();
      this.pick(at, other);
      this.items()[at]?.focus();
    };
    const isOwn = other.id === token.id;
    return h(
      "button.choice",
      { type: "button", onclick: choose, "aria-current": isOwn ? "true" : null },
      bar,
      h("code", {}, visible(other)),
      h("span.share", {}, percent(other.p)),
    );
  }

  onMenuKey(event) {
    const items = [...this.menu.querySelectorAll("button")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      event.stopPropagation();
      this.menu.hidePopover();
      this.opener?.focus();
    } else if (step) {
      event.preventDefault();
      items[(items.indexOf(document.activeElement) + step + items.length) % items.length]?.focus();
    }
  }

  place(element) {
    const token = element.getBoundingClientRect();
    const menu = this.menu.getBoundingClientRect();
    const below = token.bottom + 4;
    const top = below + menu.height > innerHeight ? Math.max(8, token.top - menu.height - 4) : below;
    this.menu.style.top = `${top}px`;
    this.menu.style.left = `${Math.max(8, Math.min(token.left, innerWidth - menu.width - 8))}px`;
  }
}
