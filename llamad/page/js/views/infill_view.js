// The infill playground: the text before and after, other files, and the generated text in between.

import { announce } from "../base/announce.js";
import { button, iconButton } from "../base/buttons.js";
import { h } from "../base/dom.js";
import { speedOf } from "../base/format.js";
import { growWithText } from "../base/text_area.js";
import { preferences } from "../data/preferences.js";
import { validSampling } from "../data/sampling.js";
import { StreamRun } from "./stream_run.js";

export class InfillView {
  constructor() {
    this.text = "";
    this.run = new StreamRun(() => this.drawState());
    this.prefix = codeArea("infillPrefix", "def greet(name):\n    ");
    this.suffix = codeArea("infillSuffix", '\n\nprint(greet("Ada"))\n');
    this.between = h("pre.between.mono", { tabindex: "0", role: "group", "aria-label": "Text between" });
    this.length = h("input", { type: "number", min: "1", max: "4096", step: "1", value: "96" });
    this.files = h("div.extra-files");
    this.problem = h("p.problem", { role: "alert" });
    this.stats = h("p.stats");
    this.start = button("Fill in", () => this.toggle(), { style: "primary", icon: "play" });
    this.accept = button("Accept", () => this.take(), { icon: "check" });
    this.element = h("div.tool-view", {}, h("div.column", {}, this.content()));
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.toggle();
      if (event.key === "Escape" && this.run.isBusy) this.run.stop();
    });
    this.drawState();
  }

  content() {
    return [
      h("h2", {}, "Infill"),
      h(
        "p.muted",
        {},
        "The model writes what stands between two texts, as an editor's completion does. It must be one that was " +
          "trained for it.",
      ),
      h("label.field", {}, h("span", {}, "Before"), this.prefix),
      h("div.field", {}, h("span", {}, "Between"), this.between),
      h("label.field", {}, h("span", {}, "After"), this.suffix),
      h(
        "details.fold",
        {},
        h("summary", {}, h("span", {}, "Other files")),
        h(
          "div.fold-body",
          {},
          this.files,
          button("Add a file", () => this.addFile(), { icon: "add" }),
        ),
      ),
      h("div.row", {}, this.start, this.accept, h("label.inline-field", {}, h("span", {}, "Tokens"), this.length)),
      this.problem,
      this.stats,
    ];
  }

  addFile() {
    const name = h("input", { type: "text", placeholder: "greetings.py", "aria-label": "File name" });
    const text = h("textarea.mono", { rows: "3", placeholder: "Its text", "aria-label": "File text" });
    const row = h(
      "div.extra-file",
      {},
      name,
      text,
      iconButton("trash", "Remove file", () => row.remove()),
    );
    this.files.append(row);
    name.focus();
  }

  extraFiles() {
    return [...this.files.children].map((row) => ({
      filename: row.querySelector("input").value || "file",
      text: row.querySelector("textarea").value,
    }));
  }

  async toggle() {
    if (this.run.isBusy) return this.run.stop();
    this.text = "";
    this.problem.textContent = "";
    const body = {
      ...validSampling(preferences.get("sampling")),
      input_prefix: this.prefix.value,
      input_suffix: this.suffix.value,
      input_extra: this.extraFiles(),
      n_predict: Math.max(1, Math.round(this.length.valueAsNumber) || 96),
    };
    const { error } = await this.run.start("infill", body, (event) => this.add(event));
    if (error) this.problem.textContent = error;
    else announce("Filled in");
  }

  add(event) {
    this.text += event.content ?? "";
    if (event.timings) this.stats.textContent = speedOf(event.timings);
    this.drawState();
  }

  /** Append the generated text to the text before it. */
  take() {
    this.prefix.value += this.text;
    this.prefix.dispatchEvent(new Event("input"));
    this.text = "";
    this.drawState();
    this.prefix.focus();
  }

  drawState() {
    const { isBusy } = this.run;
    this.start.lastChild.textContent = isBusy ? "Stop" : "Fill in";
    this.start.classList.toggle("busy", isBusy);
    this.accept.hidden = !this.text || isBusy;
    this.between.textContent = this.text || (isBusy ? "…" : " ");
  }

  leave() {
    this.run.stop();
  }
}

function codeArea(name, fallback) {
  const area = h("textarea.mono", { rows: "5", spellcheck: "false", value: preferences.get(name, fallback) });
  growWithText(area);
  area.addEventListener("input", () => preferences.set(name, area.value));
  return area;
}
