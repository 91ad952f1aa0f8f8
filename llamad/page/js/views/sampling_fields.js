// The fields of the sampling options. A value is stored as soon as it is entered; an empty field means the server's.

import { h, uniqueId } from "../base/dom.js";
import { plainNumber } from "../base/format.js";
import { preferences } from "../data/preferences.js";
import { problemWith, SAMPLING } from "../data/sampling.js";
import { defaultOf } from "../server/server.js";

/** Return the elements of all groups; all but the first are folded. */
export function samplingFields() {
  return SAMPLING.map((group, at) => {
    const fields = h("div.number-fields", {}, group.fields.map(numberField));
    if (at === 0) return fields;
    return h("details.fold", {}, h("summary", {}, h("span", {}, group.title)), h("div.fold-body", {}, fields));
  });
}

function numberField(field) {
  const kept = preferences.get("sampling", {})[field.name];
  const note = uniqueId("note");
  const hint = h("small", { id: note }, field.hint);
  const input = h("input", {
    type: "number",
    inputmode: "decimal",
    step: Number.isInteger(field.step) ? "1" : "any",
    value: kept ?? "",
    placeholder: shownDefault(field.name),
    "aria-describedby": note,
  });
  input.addEventListener("input", () => {
    const sampling = { ...preferences.get("sampling", {}) };
    const problem = input.value === "" && !input.validity.badInput ? "" : problemWith(field.name, input.valueAsNumber);
    if (problem || input.value === "") delete sampling[field.name];
    else sampling[field.name] = input.valueAsNumber;
    preferences.set("sampling", sampling);
    hint.textContent = problem || field.hint;
    hint.classList.toggle("problem", problem !== "");
    input.setAttribute("aria-invalid", String(problem !== ""));
  });
  return h("label.field", {}, h("span", {}, field.label), input, hint);
}

function shownDefault(name) {
  const value = defaultOf(name);
  return typeof value === "number" ? String(name === "seed" && value === 4294967295 ? -1 : plainNumber(value)) : "";
}
