// The settings of this conversation (system prompt, form of answers, tools) and of all (sampling, thinking, key).

import { button } from "../base/buttons.js";
import { openDialog } from "../base/dialogs.js";
import { fill, h, uniqueId } from "../base/dom.js";
import { toolsOf } from "../data/chat_request.js";
import * as library from "../data/library.js";
import { preferences } from "../data/preferences.js";
import { currentKey, setKey } from "../server/api.js";
import { props, readProps } from "../server/server.js";
import { askKey } from "./key_dialog.js";
import { samplingFields } from "./sampling_fields.js";

const FORMATS = [
  ["text", "Text"],
  ["json", "JSON"],
  ["schema", "JSON that fits a schema"],
];
const THINKING = [
  ["auto", "As the model does"],
  ["on", "On"],
  ["off", "Off"],
];
const SCHEMA_EXAMPLE = '{"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}';
const TOOLS_EXAMPLE =
  '[{"name": "weather", "description": "The weather of a city", ' +
  '"parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]';

/** Show the settings; resolves when they are closed. `conversation` may be null. */
export function openSettings(conversation) {
  return openDialog(
    "Settings",
    () =>
      h("div.dialog-body.settings", {}, conversation && conversationPart(conversation), samplingPart(), serverPart()),
    { wide: true },
  );
}

function section(title, ...content) {
  return h("section", {}, h("h3", {}, title), content);
}

function conversationPart(conversation) {
  const keep = () => library.save(conversation);
  const system = area(
    "System prompt",
    conversation.system,
    "Who the model is and how it answers",
    (text) => (conversation.system = text),
  );
  const schema = area(
    "JSON schema",
    conversation.schema,
    SCHEMA_EXAMPLE,
    (text) => (conversation.schema = text),
    isJson,
  );
  schema.hidden = conversation.format !== "schema";
  const format = choice("Answers are", FORMATS, conversation.format, (value) => {
    conversation.format = value;
    schema.hidden = value !== "schema";
  });
  const tools = area("Tools", conversation.tools, TOOLS_EXAMPLE, (text) => (conversation.tools = text), isTools);
  const useForNew = button("Use for new chats", () => {
    preferences.set("system", conversation.system);
    useForNew.querySelector("span").textContent = "New chats begin with it";
  });
  const part = section("This conversation", system, h("div", {}, useForNew), format, schema, tools);
  part.addEventListener("change", keep);
  return part;
}

function samplingPart() {
  const host = h("div");
  const draw = () => fill(host, samplingFields());
  draw();
  const thinking = choice("Thinking", THINKING, preferences.get("thinking", "auto"), (value) =>
    preferences.set("thinking", value),
  );
  const reset = button("Use the server's values", () => {
    preferences.set("sampling", {});
    draw();
  });
  return section(
    "Generation",
    h("p.muted", {}, "Empty fields take the server's value, which they show."),
    thinking,
    host,
    h("div", {}, reset),
  );
}

function serverPart() {
  const line = h(
    "p.muted",
    {},
    [props.value?.model_alias, props.value?.model_ftype, props.value?.build_info].filter(Boolean).join(" · "),
  );
  const state = h("p", {}, currentKey() ? "A key is in use." : "No key is in use.");
  const change = button("Enter a key", async () => {
    const given = await askKey(false);
    if (!given) return;
    setKey(given.key, given.isKept);
    state.textContent = "A key is in use.";
    await readProps();
  });
  const forget = button("Forget the key", () => {
    setKey("", false);
    state.textContent = "No key is in use.";
  });
  return section("Server", line, state, h("div.row", {}, change, forget));
}

function area(label, value, placeholder, onchange, problemOf = () => "") {
  const note = uniqueId("note");
  const problem = h("p.problem", { id: note });
  const field = h("textarea", { rows: "4", value, placeholder, "aria-describedby": note });
  field.addEventListener("input", () => {
    onchange(field.value);
    problem.textContent = problemOf(field.value);
    field.setAttribute("aria-invalid", String(problem.textContent !== ""));
  });
  return h("label.field", {}, h("span", {}, label), field, problem);
}

function choice(label, options, value, onchange) {
  const select = h(
    "select",
    { onchange: () => onchange(select.value) },
    options.map(([name, words]) => h("option", { value: name, selected: name === value }, words)),
  );
  return h("label.field", {}, h("span", {}, label), select);
}

function isJson(text) {
  try {
    if (text.trim()) JSON.parse(text);
    return "";
  } catch (error) {
    return error.message;
  }
}

function isTools(text) {
  try {
    if (text.trim()) toolsOf(text);
    return "";
  } catch (error) {
    return error.message;
  }
}
