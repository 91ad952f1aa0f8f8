// The choice of a model: shows a name if there is one model, and a list if there are several.

import { fill, h } from "../base/dom.js";
import { chooseModel, chosenModel, models } from "../server/server.js";

/** Return the last part of a path, because the name of a model without an alias is its file's path. */
export function shortName(id) {
  return id
    .split("/")
    .at(-1)
    .replace(/\.gguf$/i, "");
}

const STATES = { loading: "loading", unloaded: "not loaded", failed: "failed", sleeping: "asleep" };

/** Return the element, which follows the server's list. */
export function modelPicker() {
  const element = h("div.model-picker");
  const draw = () => {
    const all = models.value;
    if (all.length < 2) {
      fill(element, all.length > 0 && h("span.model-name", { title: all[0].id }, shortName(all[0].id)));
      return;
    }
    const options = all.map((model) => {
      const state = STATES[model.status?.value];
      return h(
        "option",
        { value: model.id, selected: model.id === chosenModel.value },
        shortName(model.id) + (state ? ` (${state})` : ""),
      );
    });
    const select = h("select", { "aria-label": "Model", onchange: () => chooseModel(select.value) }, options);
    fill(element, select);
  };
  models.watch(draw);
  return element;
}
