// The field in which messages are written: its text, its files, sending and stopping.

import { iconButton } from "../base/buttons.js";
import { fill, h } from "../base/dom.js";
import { icon } from "../base/icons.js";
import { growWithText } from "../base/text_area.js";
import { preferences } from "../data/preferences.js";
import { props } from "../server/server.js";
import { acceptedTypes, Attachments } from "./attachments.js";

const isTouch = matchMedia("(pointer: coarse)");

export class Composer {
  /** `actions`: send({text, media}), stop(), editLast(). */
  constructor(actions) {
    this.actions = actions;
    this.attachments = new Attachments();
    this.isBusy = false;
    this.area = h("textarea", { rows: "1", placeholder: "Write a message", "aria-label": "Message", id: "composer" });
    this.fit = growWithText(this.area);
    this.picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files" });
    this.attach = iconButton("attach", "Attach images or sound", () => this.picker.click(), { hidden: true });
    this.sendButton = h("button.send", { type: "submit" });
    this.chips = h("div.chips");
    this.problem = h("p.problem", { role: "alert" });
    const row = h("div.composer-row", {}, this.attach, this.area, this.sendButton);
    this.element = h("form.composer", {}, this.attachments.element, row, this.picker, this.chips, this.problem);
    this.listen();
    this.area.value = preferences.get("draft", "");
    this.setBusy(false);
    this.unwatch = [
      props.watch((value) => this.setTypes(value)),
      this.attachments.problem.watch((text) => (this.problem.textContent = text)),
    ];
  }

  listen() {
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.isBusy) this.actions.stop();
      else this.send();
    });
    this.area.addEventListener("keydown", (event) => this.onKey(event));
    this.area.addEventListener("input", () => {
      preferences.set("draft", this.area.value);
      this.problem.textContent = "";
    });
    this.area.addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      if (!files.length) return;
      event.preventDefault();
      this.attachments.add(files);
    });
    this.picker.addEventListener("change", async () => {
      await this.attachments.add(this.picker.files);
      this.picker.value = "";
      this.area.focus();
    });
  }

  onKey(event) {
    if (event.isComposing) return;
    const sends = event.key === "Enter" && !event.shiftKey && (!isTouch.matches || event.ctrlKey || event.metaKey);
    if (sends) {
      event.preventDefault();
      if (!this.isBusy) this.send();
    } else if (event.key === "ArrowUp" && !this.area.value) {
      event.preventDefault();
      this.actions.editLast();
    }
  }

  send() {
    const text = this.area.value.trim();
    if (!text && !this.attachments.files.length) return;
    this.area.value = "";
    preferences.set("draft", "");
    this.fit();
    this.actions.send({ text, media: this.attachments.take() });
  }

  /** Turn the button into a stop button while an answer is written. */
  setBusy(isBusy) {
    this.isBusy = isBusy;
    const label = isBusy ? "Stop" : "Send";
    fill(this.sendButton, icon(isBusy ? "stop" : "arrowUp"));
    this.sendButton.setAttribute("aria-label", label);
    this.sendButton.title = isBusy ? "Stop (Esc)" : "Send (Enter)";
    this.sendButton.classList.toggle("busy", isBusy);
  }

  /** Show the settings that affect the answers, as buttons that open the settings. */
  setChips(words, onclick) {
    this.chips.hidden = words.length === 0;
    fill(
      this.chips,
      words.map((word) => h("button.chip", { type: "button", onclick }, word)),
    );
  }

  setTypes(value) {
    this.attachments.types = acceptedTypes(value);
    this.attach.hidden = !this.attachments.types.length;
    this.picker.accept = this.attachments.types.join(",");
  }

  leave() {
    for (const end of this.unwatch) end();
  }
}
