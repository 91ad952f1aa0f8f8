// What the page knows about the server: whether it serves, its models, its settings. It asks again while a model loads,
// and now and then; views watch the signals.

import { Signal } from "../base/signal.js";
import { ApiError, getJson, health } from "./api.js";
import { preferences } from "../data/preferences.js";

const LOADING_MS = 500;
const READY_MS = 15_000;

/** state: "connecting" | "loading" | "ready" | "failed" | "draining" | "unreachable"; progress: 0 to 1, or null. */
export const status = new Signal({ state: "connecting", message: "", progress: null });
export const models = new Signal([]); // from /v1/models
export const chosenModel = new Signal(""); // the id of one of them
export const props = new Signal(null); // from /props

let timer = 0;
let asking = null;

/** Ask now, and keep asking. */
export function check() {
  clearTimeout(timer);
  asking ??= ask().finally(() => {
    asking = null;
    const isCalm = status.value.state === "ready" || status.value.state === "failed";
    timer = setTimeout(check, isCalm ? READY_MS : LOADING_MS);
  });
  return asking;
}

async function ask() {
  const current = stateOf(await health());
  const wasReady = status.value.state === "ready";
  if (current.state !== "unreachable" && (!wasReady || !models.value.length)) await readModels();
  if (current.state === "ready" && (!wasReady || !props.value)) await readProps();
  const { state, message, progress } = status.value;
  if (state !== current.state || message !== current.message || progress !== current.progress) status.set(current);
}

/** Return what a response of /health means. Pure. */
export function stateOf(answer) {
  if (!answer) return { state: "unreachable", message: "The server cannot be reached.", progress: null };
  const { status: code, body } = answer;
  if (code === 200) return { state: "ready", message: "", progress: null };
  const message = body?.error?.message ?? `The server answered with status ${code}.`;
  if (code !== 503) return { state: "failed", message, progress: null };
  const read = body.progress?.percent;
  const progress = typeof read === "number" ? read / 100 : null;
  return { state: body.status === "draining" ? "draining" : "loading", message, progress };
}

async function readModels() {
  try {
    const { data } = await getJson("v1/models", { quiet: true });
    const kept = preferences.get("model");
    chosenModel.set(data.some((one) => one.id === kept) ? kept : (data[0]?.id ?? ""));
    models.set(data);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Read /props of the chosen model. It needs no key, but shows more with one. */
export async function readProps() {
  const choice = models.value.length > 1 ? `?model=${encodeURIComponent(chosenModel.value)}` : "";
  try {
    props.set(await getJson(`props${choice}`, { quiet: true }));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Use another model from now on. */
export async function chooseModel(id) {
  preferences.set("model", id);
  chosenModel.set(id);
  await readProps();
}

/** Return the server's default of a generation option, or undefined while it is not known. */
export function defaultOf(name) {
  const settings = props.value?.default_generation_settings;
  return settings?.params?.[name] ?? settings?.[name];
}
