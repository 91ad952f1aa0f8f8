// The choice of a model: shows a name if there is one model, and a list if there are several.

import { fill, h, reconcile } from "../base/dom.js";
import { labelOf } from "../data/model_list.js";
import { chooseModel, chosenModel, models, router } from "../server/server.js";

/** Return the last part of a path, because the name of a model without an alias is its file's path. */
export function shortName(id) {
  return id
    .split("/")
    .at(-1)
    .replace(/\.gguf$/i, "");
}

/** Return the element, which follows the server's list. */
export function modelPicker() {
  const element = h("div.model-picker");
  const select = h("select", { "aria-label": "Model", onchange: () => chooseModel(select.value) });
  const options = new Map(); // the id of a model → its option, which stays, so that an open list stays open
  const draw = () => {
    const all = models.value;
    if (all.length < 2 && !router.value) {
      fill(element, all.length > 0 && h("span.model-name", { title: all[0].id }, shortName(all[0].id)));
      return;
    }
    const names = all.map((model) => shortName(model.id));
    all.forEach((model, at) => {
      if (!options.has(model.id)) options.set(model.id, h("option", { value: model.id }));
      const isUnique = names.indexOf(names[at]) === names.lastIndexOf(names[at]);
      const label = labelOf(model);
      const text = (isUnique ? names[at] : model.id) + (label ? ` (${label})` : "");
      const option = options.get(model.id);
      if (option.textContent !== text) option.textContent = text;
    });
    reconcile(
      select,
      all.map((model) => options.get(model.id)),
    );
    if (select.value !== chosenModel.value) select.value = chosenModel.value;
    reconcile(element, [select]);
  };
  models.watch(draw);
  chosenModel.watch(draw);
  return element;
}
