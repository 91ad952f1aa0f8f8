// Owns every request to the server: addresses, the key, errors. Addresses are relative to the page, so that it also
// works below --api-prefix and behind a proxy.

import { EventReader } from "./sse.js";

const KEY = "llamad.key";
const BASE = new URL(".", document.baseURI);

/** What the server refused, with its HTTP status (0: it was not reached) and its own words. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let askForKey = null;
let asking = null;

/** Whom to ask for a key: an async function that returns {key, isKept} or null. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** The key in use: of this tab, or one that is kept in the browser. */
export function currentKey() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
}

/** Use a key from now on; an empty one forgets it. */
export function setKey(key, isKept) {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (key) (isKept ? localStorage : sessionStorage).setItem(KEY, key);
}

/** A response of the server that is no error. Throws ApiError; asks for a key where one is missing. */
async function send(path, { body, signal, quiet = false } = {}) {
  const key = currentKey();
  const headers = {
    ...(key && { Authorization: `Bearer ${key}` }),
    ...(body && { "Content-Type": "application/json" }),
  };
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method: body ? "POST" : "GET",
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
  if (response.status === 401 && !quiet && (await gotKey(key))) return send(path, { body, signal, quiet });
  throw error;
}

/** Ask for a key, once for all requests that wait for it; true if there is another one now. */
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
    // no JSON: a proxy's page, perhaps
  }
  return new ApiError(response.status, message, Number(response.headers.get("Retry-After")) || 0);
}

/** The JSON of a GET. `quiet`: never ask for a key. */
export async function getJson(path, options) {
  return (await send(path, options)).json();
}

/** The text of a GET. */
export async function getText(path, options) {
  return (await send(path, options)).text();
}

/** Where the server stands: {status, body} of /health, whatever its status; null if it is not reached. */
export async function health() {
  try {
    const response = await fetch(new URL("health", BASE), { cache: "no-store" });
    return { status: response.status, body: await response.json() };
  } catch {
    return null;
  }
}

/** The events of a streamed POST, as they come. Throws ApiError, also for an error inside the stream. */
export async function* postStream(path, body, signal) {
  const response = await send(path, { body: { ...body, stream: true }, signal });
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
