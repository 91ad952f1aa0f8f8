// Conversations: makes new ones, and checks those of files. Pure.

export const FORMAT = "llamad-conversations";
export const VERSION = 1;

const ROLES = new Set(["user", "assistant", "tool"]);
const MEDIA =
  /^data:(?:image\/(?:png|jpeg|gif|webp|bmp)|audio\/(?:wav|x-wav|wave|mpeg|mp3|flac|x-flac));base64,[A-Za-z0-9+/=]*$/;

/** Return a new conversation without messages. */
export function newConversation({ system = "", now = Date.now() } = {}) {
  return {
    id: crypto.randomUUID?.() ?? String(Math.random()).slice(2),
    title: "",
    created: now,
    updated: now,
    system,
    format: "text", // the form of answers: text, json or schema
    schema: "",
    tools: "",
    nodes: {},
    chosen: {},
    lastId: 0,
  };
}

/** Return the contents of an exported file. */
export function exported(conversations) {
  return { format: FORMAT, version: VERSION, conversations };
}

/** Return the conversations of an exported file. Throws Error with a reason that can be shown. */
export function imported(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (value?.format !== FORMAT || !Array.isArray(value.conversations)) {
    throw new Error("The file holds no exported conversations.");
  }
  if (value.version !== VERSION) throw new Error(`The file has version ${value.version}; this page reads ${VERSION}.`);
  return value.conversations.map(checked);
}

/** Return a conversation with the known fields of an untrusted object, after checking their types. */
function checked(value) {
  const conversation = newConversation();
  for (const name of ["title", "system", "schema", "tools"]) conversation[name] = text(value?.[name]);
  if (["text", "json", "schema"].includes(value?.format)) conversation.format = value.format;
  for (const name of ["created", "updated"]) {
    if (Number.isFinite(value?.[name])) conversation[name] = value[name];
  }
  for (const node of Object.values(value?.nodes ?? {})) addChecked(conversation, node);
  for (const [parent, child] of Object.entries(value?.chosen ?? {})) {
    if (Object.hasOwn(conversation.nodes, child)) conversation.chosen[parent] = child;
  }
  return conversation;
}

/** Check a node and add it. It must come after its parent, so there are no cycles. */
function addChecked(conversation, node) {
  const id = text(node?.id);
  const parent = node?.parent ?? null;
  const isKnown = Object.hasOwn(conversation.nodes, id);
  if (!/^m\d{1,9}$/.test(id) || isKnown || !ROLES.has(node.role)) throw new Error("The file has a broken message.");
  if (parent !== null && !Object.hasOwn(conversation.nodes, parent)) throw new Error("The file has a broken message.");
  conversation.lastId = Math.max(conversation.lastId, Number(id.slice(1)));
  const copy = { id, parent, role: node.role, content: text(node.content) };
  for (const name of ["reasoning", "error", "model", "callId"]) if (text(node[name])) copy[name] = node[name];
  if (node.isStopped === true) copy.isStopped = true;
  if (Array.isArray(node.media)) copy.media = node.media.map(checkedMedia);
  if (Array.isArray(node.calls)) {
    copy.calls = node.calls.map((call) => ({
      id: text(call?.id),
      name: text(call?.name),
      arguments: text(call?.arguments),
    }));
  }
  if (node.timings && typeof node.timings === "object") {
    copy.timings = Object.fromEntries(Object.entries(node.timings).filter(([, number]) => Number.isFinite(number)));
  }
  conversation.nodes[id] = copy;
}

function checkedMedia(file) {
  if (!MEDIA.test(text(file?.data))) throw new Error("The file has an invalid image or sound.");
  return { name: text(file.name), data: file.data };
}

function text(value) {
  return typeof value === "string" ? value : "";
}
