// What is shown folded: thoughts, calls of tools and their results.

import { h } from "../base/dom.js";
import { icon } from "../base/icons.js";
import { button } from "../base/buttons.js";
import { highlight } from "../text/highlight.js";

function fold(name, title, ...content) {
  return h("details.fold", {}, h("summary", {}, icon(name), h("span", {}, title)), h("div.fold-body", {}, content));
}

/** A thought. While it is written, update(text, isThinking) changes it. */
export class ThoughtFold {
  constructor() {
    this.title = h("span", {}, "Thoughts");
    this.body = h("div.fold-body.thought");
    this.element = h("details.fold", {}, h("summary", {}, icon("thought"), this.title), this.body);
    this.element.addEventListener("toggle", () => this.draw());
    this.text = "";
  }

  update(text, isThinking) {
    this.title.textContent = isThinking ? "Thinking …" : "Thoughts";
    this.element.classList.toggle("busy", isThinking);
    const isNew = text !== this.text;
    this.text = text;
    if (isNew) this.draw();
  }

  /** Make its text only if it is visible, and as plain text, because a thought may be long. */
  draw() {
    if (this.element.open) this.body.textContent = this.text.trim();
  }
}

/** Return the element of a call: its name, and its arguments as JSON. */
export function callFold(call) {
  const code = h(
    "code",
    {},
    highlight(pretty(call.arguments), "json").map((run) =>
      run.kind ? h(`span.hl-${run.kind}`, {}, run.text) : run.text,
    ),
  );
  return fold(
    "tool",
    `Calls ${call.name || "a tool"}`,
    h("pre", { tabindex: "0", role: "group", "aria-label": "Arguments" }, code),
  );
}

/** Return the element of a tool's result. */
export function resultFold(node, name) {
  return fold(
    "check",
    `Result${name ? ` of ${name}` : ""}`,
    h("pre", { tabindex: "0", role: "group", "aria-label": "Result" }, node.content),
  );
}

/** Return a form for the results of calls; `answer(results)` is called with a text for each. */
export function resultForm(calls, answer) {
  const fields = calls.map((call) => {
    const area = h("textarea", { rows: "2", placeholder: "What the tool returns, for example JSON" });
    return { area, element: h("label.field", {}, h("span", {}, `Result of ${call.name}`), area) };
  });
  const submit = (event) => {
    event.preventDefault();
    answer(fields.map(({ area }) => area.value));
  };
  return h(
    "form.result-form",
    { onsubmit: submit },
    fields.map((field) => field.element),
    h("div", {}, button("Send results", null, { type: "submit", style: "primary" })),
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // the JSON is not complete yet
  }
}
