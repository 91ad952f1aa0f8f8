// The list of models of a server that has many: their states, and buttons to load and unload them.

import { announce } from "../base/announce.js";
import { button, iconButton } from "../base/buttons.js";
import { openDialog } from "../base/dialogs.js";
import { h, reconcile } from "../base/dom.js";
import { labelOf, stateOf } from "../data/model_list.js";
import { ApiError, postJson } from "../server/api.js";
import { models, readModels, router } from "../server/server.js";

/** Return the button that opens the list. It is hidden if the server has one model. */
export function modelsButton() {
  const element = iconButton("models", "Models", openModels, { hidden: true });
  router.watch((value) => (element.hidden = !value));
  return element;
}

/** Show the list; resolves when it is closed. */
async function openModels() {
  const rows = new Map(); // the id of a model → its Row
  const list = h("ul.models");
  const problem = h("p.problem", { role: "alert" });
  const act = async (work) => {
    problem.textContent = "";
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.textContent = error.message;
    }
  };
  const unwatch = models.watch((all) => {
    for (const model of all) {
      if (!rows.has(model.id)) rows.set(model.id, new Row(model.id, act));
      rows.get(model.id).update(model);
    }
    reconcile(
      list,
      all.map((model) => rows.get(model.id).element),
    );
  });
  const reload = button("Read the list again", () => act(() => readModels(true)), { icon: "redo" });
  await openDialog("Models", () => h("div.dialog-body", {}, problem, list, h("div", {}, reload)), { wide: true });
  unwatch();
}

/** One model. It is changed in place, so that its button keeps the focus. */
class Row {
  constructor(id, act) {
    this.state = h("span.state");
    this.bar = h("progress", { max: "1", hidden: true, "aria-label": `Progress of ${id}` });
    this.reason = h("p.problem", { hidden: true });
    this.button = button("Load", () => act(() => this.toggle()), { "aria-label": `Load ${id}` });
    this.id = id;
    this.element = h(
      "li",
      {},
      h("span.model-id", {}, id),
      this.state,
      this.bar,
      this.button,
      this.reason,
    );
  }

  update(model) {
    const state = stateOf(model);
    const { progress, reason = "" } = model.status ?? {};
    this.isUp = ["loaded", "sleeping", "loading", "downloading"].includes(state);
    this.state.className = `state ${state}`;
    this.state.textContent = labelOf(model) || "loaded";
    this.bar.hidden = typeof progress !== "number";
    if (typeof progress === "number") this.bar.value = progress;
    this.reason.hidden = !reason;
    this.reason.textContent = reason;
    const word = state === "loading" || state === "downloading" ? "Cancel" : this.isUp ? "Unload" : "Load";
    this.button.lastChild.textContent = word;
    this.button.setAttribute("aria-label", `${word} ${this.id}`);
    this.button.hidden = Boolean(model.parent); // an adapter is loaded with its model
  }

  async toggle() {
    await postJson(this.isUp ? "models/unload" : "models/load", { model: this.id });
    announce(this.isUp ? `${this.id} is being unloaded` : `${this.id} is being loaded`);
    await readModels();
  }
}
