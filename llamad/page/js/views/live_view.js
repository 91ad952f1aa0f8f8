// The live view: slots, queue, cache and speed. It polls while it is visible, and says which flags show more.

import { fill, h } from "../base/dom.js";
import { count, decimal, percent } from "../base/format.js";
import { stateOf } from "../data/model_list.js";
import { ratesOf, Series } from "../data/series.js";
import { ApiError, getJson, getText, health } from "../server/api.js";
import { chosenModel, models, props, router } from "../server/server.js";
import { readMetrics } from "../server/prometheus.js";
import { Chart } from "./chart.js";
import { missTable } from "./miss_table.js";
import { slotTable } from "./slot_table.js";

const EVERY_MS = 1000;
const DRAFTS = "Drafted tokens"; // shown if the server drafts

export class LiveView {
  constructor() {
    this.series = Object.fromEntries(
      ["generated", "prompt", "busy", "waiting", "cache", "reused", "again", "accepted"].map((name) => [
        name,
        new Series(),
      ]),
    );
    const { generated, prompt, busy, waiting, cache, reused, again, accepted } = this.series;
    const slots = () => props.value?.total_slots ?? 1;
    this.charts = [
      new Chart("Generation", generated, (value) => `${decimal(value)} tokens/s`),
      new Chart("Prompts", prompt, (value) => `${decimal(value)} tokens/s`),
      new Chart("Busy slots", busy, (value) => `${count(value)} of ${slots()}`, slots),
      new Chart("Queue", waiting, (value) => `${count(value)} waiting`),
      new Chart(
        "KV cache",
        cache,
        (value) => `${percent(value)} in use`,
        () => 1,
      ),
      new Chart(
        "Prefix cache",
        reused,
        (value) => `${percent(value)} of prompts`,
        () => 1,
      ),
      new Chart("Computed again", again, (value) => `${decimal(value)} tokens/s`),
      new Chart(
        DRAFTS,
        accepted,
        (value) => `${percent(value)} accepted`,
        () => 1,
      ),
    ];
    this.tiles = h(
      "div.tiles",
      {},
      this.charts.map((chart) => chart.element),
    );
    this.slots = h("div");
    this.title = h("h2", {}, "Live");
    this.model = ""; // of a server with many models, the one whose numbers are shown
    this.notes = h("div.notes", { role: "status" });
    this.element = h(
      "div.tool-view",
      {},
      h("div.column.wide", {}, this.title, this.notes, this.tiles, this.slots),
    );
    this.before = null;
    this.hasAsked = false; // whether it has asked for a key
    this.tick();
    this.timer = setInterval(() => this.tick(), EVERY_MS);
  }

  async tick() {
    if (document.hidden || this.isAsking) return;
    this.setModel(router.value ? chosenModel.value : "");
    this.isAsking = true;
    try {
      const quiet = this.hasAsked;
      this.hasAsked = true;
      const notes = [await this.readMetrics(quiet), await this.readSlots(quiet)].filter(Boolean);
      if (!this.hasLeft) this.drawNotes(notes);
    } finally {
      this.isAsking = false;
    }
  }

  /** Show the numbers of another model: its counters are others. */
  setModel(model) {
    if (model === this.model) return;
    this.model = model;
    this.before = null;
    for (const series of Object.values(this.series)) series.values = [];
    this.title.textContent = model ? `Live: ${model}` : "Live";
  }

  /** Read /metrics; return why there are none, or "". Without them, /health still tells how many slots are busy. */
  async readMetrics(quiet) {
    let text;
    try {
      text = await getText("metrics", { quiet });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const answer = await health(this.model);
      const busy = answer?.body.slots_processing ?? 0;
      this.take({ generated: 0, prompt: 0, busy, waiting: 0, cache: 0, reused: 0, again: 0 });
      this.showOnly(["Busy slots"]);
      return noteOf(error, "Speed, queue and cache", "--metrics");
    }
    const now = performance.now();
    const metrics = readMetrics(text, this.model);
    this.take(ratesOf(this.before?.metrics ?? null, metrics, this.before ? (now - this.before.now) / 1000 : 0));
    this.before = { metrics, now };
    this.showOnly(null);
    return "";
  }

  take(values) {
    for (const [name, value] of Object.entries(values)) this.series[name].add(value);
    for (const chart of this.charts) chart.draw();
  }

  showOnly(titles) {
    const isDrafting = props.value?.default_generation_settings?.speculative ?? false;
    for (const { element, title } of this.charts)
      element.hidden = titles === null ? title === DRAFTS && !isDrafting : !titles.includes(title);
  }

  async readSlots(quiet) {
    if (this.model && stateOf(models.value.find((one) => one.id === this.model)) !== "loaded") {
      fill(this.slots);
      return `${this.model} is not loaded.`;
    }
    const query = this.model ? `?model=${encodeURIComponent(this.model)}&autoload=false` : "";
    try {
      const slots = await getJson(`slots${query}`, { quiet });
      fill(this.slots, slotTable(slots), missTable(slots));
      return "";
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(this.slots);
      return noteOf(error, "What each slot does", "--slots");
    }
  }

  drawNotes(notes) {
    const text = notes.join("\n");
    if (text === this.shownNotes) return; // a screen reader should not read it every second
    this.shownNotes = text;
    fill(
      this.notes,
      notes.map((note) => h("p.note", {}, note)),
    );
  }

  leave() {
    this.hasLeft = true;
    clearInterval(this.timer);
  }
}

function noteOf(error, what, flag) {
  if (error.status === 501) return `${what}: hidden. Start the server with ${flag} to see it.`;
  if (error.status === 401) return `${what}: this needs an API key.`;
  return `${what}: ${error.message}`;
}
