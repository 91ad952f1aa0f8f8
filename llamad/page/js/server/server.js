// What the page knows about the server: whether it serves, its models, its settings. It asks again while a model loads,
// and now and then; views watch the signals.

import { Signal } from "../base/signal.js";
import { firstChoice, isServed, modalitiesOf, stateOf as stateOfModel, withProgress } from "../data/model_list.js";
import { preferences } from "../data/preferences.js";
import { ApiError, getJson, health } from "./api.js";
import { followModels } from "./model_events.js";

const LOADING_MS = 500;
const READY_MS = 15_000;

/** state: "connecting" | "loading" | "ready" | "failed" | "draining" | "unreachable"; progress: 0 to 1, or null. */
export const status = new Signal({ state: "connecting", message: "", progress: null });
export const models = new Signal([]); // from /v1/models
export const chosenModel = new Signal(""); // the id of one of them
export const props = new Signal(null); // from /props, of the chosen model
export const router = new Signal(null); // from /props of a server with many models; null if it has one
export const failedDownload = new Signal(null); // the last one: {model, reason}; an empty reason: it was cancelled

let timer = 0;
let asking = null;
let daemon = status.value; // what /health says; with many models, it says nothing about them
let propsOf = ""; // which model the props are from, and whether it was loaded
let nReads = 0;

/** Ask now, and keep asking. */
export function check() {
  clearTimeout(timer);
  asking ??= ask().finally(() => {
    asking = null;
    const isCalm = daemon.state === "ready" || daemon.state === "failed";
    timer = setTimeout(check, isCalm ? READY_MS : LOADING_MS);
  });
  return asking;
}

async function ask() {
  const current = stateOf(await health());
  const isNews = daemon.state !== "ready";
  daemon = current;
  if (current.state === "ready" && isNews) await readRole();
  if (current.state !== "unreachable" && (isNews || router.value || !models.value.length)) await readModels();
  if (current.state === "ready" && (isNews || !props.value)) await readProps();
  showStatus();
}

/** Show the state of the server; with many models, that of the chosen one. */
function showStatus() {
  const current = router.value && daemon.state === "ready" ? stateOfChosen(chosen()) : daemon;
  const { state, message, progress } = status.value;
  if (state !== current.state || message !== current.message || progress !== current.progress) status.set(current);
}

/** Return what the state of the chosen model means for the page: one that is not loaded is ready to be used. Pure. */
function stateOfChosen(model) {
  const state = stateOfModel(model);
  if (state === "failed") return { state, message: model.status.reason ?? "", progress: null };
  if (state !== "loading") return { state: "ready", message: "", progress: null };
  return { state, message: "", progress: model.status.progress ?? null };
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

/** Find out whether the server has many models, and follow what happens to them. */
async function readRole() {
  try {
    const told = await getJson("props", { quiet: true });
    if (told.role !== "router") return;
    const isFirst = router.value === null;
    router.set(told);
    if (isFirst) followModels(readModels, onEvent);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

function onEvent(event) {
  if (event.event === "download_failed") {
    failedDownload.set({ model: event.model, reason: event.data?.reason ?? "" });
  }
  const changed = withProgress(models.value, event);
  if (!changed) return readModels();
  models.set(changed);
  showStatus();
}

/** Read the list of models. With `isReload`, the server reads its presets and folders again first. */
export async function readModels(isReload = false) {
  const number = ++nReads;
  try {
    const { data } = await getJson(isReload ? "v1/models?reload=1" : "v1/models", { quiet: !isReload });
    if (number !== nReads) return; // a later answer has come, or will
    const kept = data.some((one) => one.id === chosenModel.value) ? chosenModel.value : preferences.get("model");
    const choice = router.value ? firstChoice(data, kept, router.value.default_model) : singleChoice(data, kept);
    if (choice !== chosenModel.value) chosenModel.set(choice);
    models.set(data);
  } catch (error) {
    if (!(error instanceof ApiError) || isReload) throw error;
  }
  if (!router.value) return;
  if (propsOf !== propsKey()) await readProps();
  showStatus();
}

function singleChoice(data, kept) {
  return data.some((one) => one.id === kept) ? kept : (data[0]?.id ?? "");
}

function chosen() {
  return models.value.find((one) => one.id === chosenModel.value);
}

function propsKey() {
  return `${chosenModel.value} ${isServed(chosen())}`;
}

/** Return the name of the model for a request, or "" if the server serves every name. */
export function modelToName() {
  return router.value || models.value.length > 1 ? chosenModel.value : "";
}

/** Read /props of the chosen model. It needs no key, but shows more with one. No model is loaded for it. */
export async function readProps() {
  const name = modelToName();
  propsOf = propsKey();
  if (router.value && !isServed(chosen())) {
    props.set({ modalities: modalitiesOf(chosen()) });
    return;
  }
  try {
    const query = name ? `?model=${encodeURIComponent(name)}&autoload=false` : "";
    props.set(await getJson(`props${query}`, { quiet: true }));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Use another model from now on. */
export async function chooseModel(id) {
  preferences.set("model", id);
  chosenModel.set(id);
  await readProps();
  showStatus();
}

/** Return the server's default of a generation option, or undefined while it is not known. */
export function defaultOf(name) {
  const settings = props.value?.default_generation_settings;
  return settings?.params?.[name] ?? settings?.[name];
}
