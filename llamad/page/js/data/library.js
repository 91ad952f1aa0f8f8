// The conversations of this browser: the list that is shown, saving, renaming, removing, files. Tabs notify each other
// of changes.

import { Signal } from "../base/signal.js";
import { titleOf } from "../base/format.js";
import * as database from "./database.js";
import { exported, imported, newConversation } from "./conversation.js";
import { preferences } from "./preferences.js";

const SAVE_MS = 1000; // between two saves of a conversation that is being written

/** The entries of the list: {id, title, updated}, newest first. */
export const list = new Signal([]);
const LOST = "This browser keeps no conversations: they are gone when the page is closed. Export what you need.";

/** Why the last save failed, or "". */
export const saveProblem = new Signal("");

const channel = new BroadcastChannel("llamad");
const pending = new Map(); // id → timer
const known = new Map(); // id → the object of a conversation, which all views share

/** Read the list. */
export async function open() {
  channel.onmessage = ({ data }) => {
    if (!pending.has(data)) known.delete(data); // another tab has a newer version
    refresh();
  };
  await refresh();
}

async function refresh() {
  const all = await database.readAll();
  list.set(all.map(entryOf).sort((a, b) => b.updated - a.updated));
}

function entryOf({ id, title, updated }) {
  return { id, title, updated };
}

/** Return a conversation by its id, or null. */
export async function find(id) {
  if (!known.has(id)) {
    const conversation = await database.read(id);
    if (!conversation) return null;
    known.set(id, conversation);
  }
  return known.get(id);
}

/** Return a new conversation; it is stored from its first message on. */
export function create() {
  const conversation = newConversation({ system: preferences.get("system", "") });
  known.set(conversation.id, conversation);
  return conversation;
}

/** Save soon: at most once a second while an answer is being written. */
export function saveSoon(conversation) {
  if (pending.has(conversation.id)) return;
  pending.set(
    conversation.id,
    setTimeout(() => save(conversation), SAVE_MS),
  );
}

/** Save now. A conversation without messages is not stored. */
export async function save(conversation) {
  clearTimeout(pending.get(conversation.id));
  pending.delete(conversation.id);
  const first = Object.values(conversation.nodes)[0];
  if (!first) return;
  conversation.title ||= titleOf(first.content || first.media?.[0]?.name || "");
  try {
    await database.write(conversation);
    saveProblem.set(database.isKept ? "" : LOST);
  } catch (error) {
    saveProblem.set(`The browser did not keep this conversation: ${error?.message ?? "no room"}`);
  }
  const others = list.value.filter((entry) => entry.id !== conversation.id);
  list.set([entryOf(conversation), ...others].sort((a, b) => b.updated - a.updated));
  channel.postMessage(conversation.id);
}

/** Give a conversation another title. */
export async function rename(id, title) {
  const conversation = await find(id);
  if (!conversation) return;
  conversation.title = title;
  await save(conversation);
}

/** Remove a conversation for good. */
export async function remove(id) {
  clearTimeout(pending.get(id));
  pending.delete(id);
  known.delete(id);
  await database.remove(id);
  list.set(list.value.filter((entry) => entry.id !== id));
  channel.postMessage(id);
}

/** Return the JSON of one conversation, or of all. */
export async function exportText(id = null) {
  const all = id === null ? await database.readAll() : [await find(id)];
  return JSON.stringify(exported(all), null, 1);
}

/** Add the conversations of a file; returns how many. Throws Error with a reason. */
export async function importText(text) {
  const conversations = imported(text);
  for (const conversation of conversations) await database.write(conversation);
  await refresh();
  channel.postMessage("");
  return conversations.length;
}
