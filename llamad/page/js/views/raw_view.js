// The raw completion: a text that the model continues, token by token, each with its alternatives.

import { announce } from "../base/announce.js";
import { button } from "../base/buttons.js";
import { fill, h, uniqueId } from "../base/dom.js";
import { speedOf } from "../base/format.js";
import { growWithText } from "../base/text_area.js";
import { preferences } from "../data/preferences.js";
import { validSampling } from "../data/sampling.js";
import { promptAfter, textOf, tokenOf } from "../data/token_text.js";
import { TokenStrip } from "./token_strip.js";
import { StreamRun } from "./stream_run.js";

const N_PROBS = 10;

export class RawView {
  constructor({ openSettings }) {
    this.tokens = [];
    this.run = new StreamRun(() => this.drawState());
    this.area = h("textarea.mono", {
      rows: "6",
      value: preferences.get("rawPrompt", ""),
      placeholder: "Once upon a time",
      id: uniqueId("prompt"),
    });
    this.fit = growWithText(this.area);
    this.area.addEventListener("input", () => preferences.set("rawPrompt", this.area.value));
    this.length = h("input", {
      type: "number",
      min: "1",
      max: "4096",
      step: "1",
      value: String(preferences.get("rawLength", 64)),
    });
    this.length.addEventListener("change", () => preferences.set("rawLength", this.lengthValue()));
    this.strip = new TokenStrip((at, other) => this.pick(at, other));
    this.problem = h("p.problem", { role: "alert" });
    this.stats = h("p.stats");
    this.start = button("Generate", () => this.toggle(), { style: "primary", icon: "play" });
    this.accept = button("Add to the text", () => this.take(), { icon: "check" });
    this.clear = button("Clear", () => this.reset(), { icon: "trash" });
    this.element = h(
      "div.tool-view",
      {},
      h(
        "div.column",
        {},
        h("h2", {}, "Completion"),
        h(
          "p.muted",
          {},
          "The model continues this text as it is, without a chat template. Choose a token to see what else it " +
            "might have been, and go on from there.",
        ),
        h("label.field", { for: this.area.id }, h("span", {}, "Text"), this.area),
        h(
          "div.row",
          {},
          this.start,
          h("label.inline-field", {}, h("span", {}, "Tokens"), this.length),
          button("Settings", () => openSettings(null), { icon: "settings" }),
        ),
        this.problem,
        h(
          "section.output",
          { "aria-label": "Continuation" },
          this.strip.element,
          this.stats,
          h("div.row", {}, this.accept, this.clear),
        ),
      ),
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.drawState();
  }

  lengthValue() {
    return Math.min(4096, Math.max(1, Math.round(this.length.valueAsNumber) || 64));
  }

  onKey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.toggle();
    if (event.key === "Escape" && this.run.isBusy) this.run.stop();
  }

  toggle() {
    if (this.run.isBusy) this.run.stop();
    else this.generate(this.lengthValue());
  }

  /** Continue after the tokens that are there. */
  async generate(n) {
    this.problem.textContent = "";
    const body = {
      ...validSampling(preferences.get("sampling")),
      prompt: promptAfter(this.area.value, this.tokens),
      n_predict: n,
      n_probs: N_PROBS,
    };
    const { error } = await this.run.start("completion", body, (event) => this.add(event));
    if (error) this.problem.textContent = error;
    else announce("The continuation is complete");
  }

  add(event) {
    for (const item of event.completion_probabilities ?? []) {
      const token = tokenOf(item);
      this.tokens.push(token);
      this.strip.add(token);
    }
    if (event.timings) this.stats.textContent = speedOf(event.timings);
    this.drawState();
  }

  /** Replace a token: the tokens after it are dropped, and the model continues. */
  pick(at, other) {
    this.run.stop();
    this.tokens = [...this.tokens.slice(0, at), { ...other, others: this.tokens[at].others, isPicked: true }];
    this.strip.set(this.tokens);
    this.generate(this.lengthValue());
  }

  /** Append the continuation to the text. */
  take() {
    this.area.value += textOf(this.tokens);
    preferences.set("rawPrompt", this.area.value);
    this.reset();
    this.fit();
    this.area.focus();
  }

  reset() {
    this.run.stop();
    this.tokens = [];
    this.strip.set([]);
    this.stats.textContent = "";
    this.drawState();
  }

  drawState() {
    const { isBusy } = this.run;
    this.start.lastChild.textContent = isBusy ? "Stop" : this.tokens.length ? "Go on" : "Generate";
    this.start.classList.toggle("busy", isBusy);
    for (const element of [this.accept, this.clear]) element.hidden = !this.tokens.length || isBusy;
    if (!this.tokens.length) fill(this.strip.element, h("p.muted", {}, isBusy ? "…" : "Nothing yet."));
  }

  leave() {
    this.run.stop();
  }
}
