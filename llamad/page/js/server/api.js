// Makes all requests to the server: addresses, the key, errors. Addresses are relative to the page, so that it also
// works below --api-prefix and behind a proxy.

import { EventReader } from "./sse.js";

const KEY = "llamad.key";
const BASE = new URL(".", document.baseURI);

/** The server refused a request: has its HTTP status (0: it was not reached) and its message. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let askForKey = null;
let asking = null;

/** Set how to ask for a key: an async function that returns {key, isKept} or null. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Return the key in use: that of this tab, or the one that the browser keeps. */
export function currentKey() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
}

/** Use a key from now on; an empty one removes it. */
export function setKey(key, isKept) {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (key) (isKept ? localStorage : sessionStorage).setItem(KEY, key);
}

/** Return a successful response of the server. Throws ApiError; asks for a key if one is missing. */
async function send(path, { body, signal, quiet = false, method = body ? "POST" : "GET" } = {}) {
  const key = currentKey();
  const headers = {
    ...(key && { Authorization: `Bearer ${key}` }),
    ...(body && { "Content-Type": "application/json" }),
  };
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method,
      headers,
      body: body && JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const error = await readError(response);
  if (response.status === 401 && !quiet && (await gotKey(key)))
    return send(path, { body, signal, quiet, method });
  throw error;
}

/** Ask for a key, once for all requests that wait for it; return whether there is a new one. */
async function gotKey(usedKey) {
  if (currentKey() !== usedKey) return true;
  asking ??= Promise.resolve(askForKey?.(Boolean(usedKey))).finally(() => (asking = null));
  const given = await asking;
  if (given) setKey(given.key, given.isKept);
  return Boolean(given);
}

async function readError(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    const value = await response.json();
    message = value.error?.message ?? message;
  } catch {
    // it is not JSON, perhaps a proxy's page
  }
  return new ApiError(response.status, message, Number(response.headers.get("Retry-After")) || 0);
}

/** Return the JSON of a GET. With `quiet`, never ask for a key. */
export async function getJson(path, options) {
  return (await send(path, options)).json();
}

/** Return the text of a GET. */
export async function getText(path, options) {
  return (await send(path, options)).text();
}

/** Return the JSON that answers a POST. */
export async function postJson(path, body) {
  return (await send(path, { body })).json();
}

/** Return the JSON that answers a DELETE. */
export async function deleteJson(path) {
  return (await send(path, { method: "DELETE" })).json();
}

/** Return {status, body} of /health, whatever its status; null if the server is not reached. With `model`, of one. */
export async function health(model = "") {
  const query = model ? `?model=${encodeURIComponent(model)}` : "";
  try {
    const response = await fetch(new URL(`health${query}`, BASE), { cache: "no-store" });
    return { status: response.status, body: await response.json() };
  } catch {
    return null;
  }
}

/** Yield the events of a streamed POST. Throws ApiError, also for an error inside the stream. */
export async function* postStream(path, body, signal) {
  yield* readEvents(await send(path, { body: { ...body, stream: true }, signal }));
}

/** Yield the events of a streamed GET, after `onOpen` was called. Throws ApiError; never asks for a key. */
export async function* getStream(path, signal, onOpen) {
  const response = await send(path, { signal, quiet: true });
  onOpen();
  yield* readEvents(response);
}

async function* readEvents(response) {
  const chunks = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const reader = new EventReader();
  try {
    for (;;) {
      const { done, value } = await chunks.read();
      if (done) return;
      for (const event of reader.push(value)) {
        if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message ?? "The stream failed.");
        yield event;
      }
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError(0, "The connection broke off.");
  } finally {
    chunks.cancel().catch(() => {}); // also if the caller stopped reading
  }
}
