// The list of models of a server that has many: their states, and buttons to load, unload, download and delete them.

import { announce } from "../base/announce.js";
import { button, iconButton } from "../base/buttons.js";
import { confirmed, openDialog } from "../base/dialogs.js";
import { h, reconcile, uniqueId } from "../base/dom.js";
import { labelOf, stateOf } from "../data/model_list.js";
import { ApiError, deleteJson, postJson } from "../server/api.js";
import { failedDownload, models, readModels, router } from "../server/server.js";

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
  const before = failedDownload.value;
  const unwatchDownloads = failedDownload.watch((failed) => {
    if (failed?.reason && failed !== before) problem.textContent = `${failed.model}: ${failed.reason}`;
  });
  const reload = button("Read the list again", () => act(() => readModels(true)), { icon: "redo" });
  const parts = [problem, list, downloadForm(act), h("div", {}, reload)];
  await openDialog("Models", () => h("div.dialog-body", {}, ...parts), { wide: true });
  unwatch();
  unwatchDownloads();
}

/** Return a form to download a model. The list shows its progress. */
function downloadForm(act) {
  const id = uniqueId("field");
  const input = h("input", {
    id,
    type: "text",
    placeholder: "USER/MODEL:QUANTIZATION",
    maxlength: "200",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  const submit = (event) => {
    event.preventDefault();
    const model = input.value.trim();
    if (!model) return;
    act(async () => {
      await postJson("models", { model });
      input.value = "";
      announce(`${model} is being downloaded`);
      await readModels();
    });
  };
  return h(
    "form.download",
    { onsubmit: submit },
    h("label.field", { for: id }, h("span", {}, "Download from Hugging Face"), input),
    button("Download", null, { icon: "download", type: "submit" }),
  );
}

/** One model. It is changed in place, so that its button keeps the focus. */
class Row {
  constructor(id, act) {
    this.state = h("span.state");
    this.bar = h("progress", { max: "1", hidden: true, "aria-label": `Progress of ${id}` });
    this.reason = h("p.problem", { hidden: true });
    this.button = button("Load", () => act(() => this.toggle()), { "aria-label": `Load ${id}` });
    this.deletion = button("Delete", () => act(() => this.remove()), {
      style: "quiet",
      hidden: true,
      "aria-label": `Delete ${id}`,
    });
    this.id = id;
    this.element = h(
      "li",
      {},
      h("span.model-id", {}, id),
      this.state,
      this.bar,
      this.button,
      this.deletion,
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
    this.deletion.hidden = !model.can_remove || Boolean(model.parent);
  }

  async toggle() {
    await postJson(this.isUp ? "models/unload" : "models/load", { model: this.id });
    announce(this.isUp ? `${this.id} is being unloaded` : `${this.id} is being loaded`);
    await readModels();
  }

  async remove() {
    const text = `The files of ${this.id} are removed from the server's disk.`;
    if (!(await confirmed("Delete model", text, "Delete"))) return;
    announce(`${this.id} is being deleted`);
    await deleteJson(`models?model=${encodeURIComponent(this.id)}`);
    this.element.closest("dialog")?.querySelector(".download input").focus();
    await readModels();
  }
}
