// What a conversation without messages shows: the model, and a few suggestions.

import { h } from "../base/dom.js";
import { count } from "../base/format.js";
import { chosenModel, models, props } from "../server/server.js";

const STARTS = [
  ["Explain", "Explain how a prefix cache makes a second question faster."],
  ["Write", "Write a short, friendly note that invites a colleague to lunch."],
  ["Code", "Write a Python function that groups words by their first letter."],
  ["List", "List three small habits that make a week calmer."],
];

/** Return the element; `start(text)` sends a first message. */
export function emptyState(start) {
  const model = models.value.find((one) => one.id === chosenModel.value);
  return h(
    "div.empty-state",
    {},
    h("h2", {}, "What shall we talk about?"),
    h("p.muted", {}, describe(model)),
    h(
      "ul.starts",
      {},
      STARTS.map(([title, text]) =>
        h(
          "li",
          {},
          h("button.start", { type: "button", onclick: () => start(text) }, h("b", {}, title), h("span", {}, text)),
        ),
      ),
    ),
  );
}

function describe(model) {
  if (!model) return "No model answers yet.";
  const { vision, audio } = props.value?.modalities ?? {};
  const parts = [model.id.split("/").at(-1)];
  if (model.meta?.n_ctx) parts.push(`${count(model.meta.n_ctx)} tokens of context`);
  if (vision) parts.push("reads images");
  if (audio) parts.push("hears sound");
  return parts.join(" · ");
}
