// A client of POST /completion for pages and scripts. Import it from the server that it should use.
//
//     import { llama } from "/completion.js"
//
//     for await (const chunk of llama("Once upon a time")) {
//       document.body.append(chunk.data.content)
//     }
//
// Every function takes the same three arguments:
//
//     prompt   what POST /completion takes as its prompt
//     params   its other options (n_predict, temperature, grammar, ...); api_key is sent as a key, not as an option
//     config   controller: your own AbortController; its abort() ends the request
//              api_url: the address of the server, if it is not the one that this file came from
//
// An error of the server is thrown as an Error with its message, `status` and `type`. An abort is thrown as fetch()
// throws it: an error with the name "AbortError". Leaving the loop early ends the request, too.

const DEFAULTS = { stream: true, n_predict: 500 }

/**
 * Generate a text. Yields a chunk for every event; `chunk.data` is its JSON: `content` is the next piece, and the last
 * one has `stop: true`, `timings` and the rest. The generator returns the whole text.
 */
export async function* llama(prompt, params = {}, config = {}) {
  const controller = config.controller ?? new AbortController()
  const { api_key: key, ...options } = params
  let text = ""
  try {
    const response = await fetch(address("completion", config), {
      method: "POST",
      body: JSON.stringify({ ...DEFAULTS, ...options, prompt, stream: true }),
      headers: headers(key),
      signal: controller.signal,
    })
    await check(response)
    for await (const data of events(response.body)) {
      if (data.error) throw failure(data.error)
      text += data.content
      yield { data }
    }
  } finally {
    controller.abort()
  }
  return text
}

/**
 * Generate a text and return an EventTarget. Its events are "message" for every chunk, whose `detail` is the chunk's
 * data; "timings" and "generation_settings" when they arrive; "done" with the whole text in `detail.content`; "error"
 * with the error.
 */
export function llamaEventTarget(prompt, params = {}, config = {}) {
  const target = new EventTarget()
  const tell = (name, detail) => target.dispatchEvent(new CustomEvent(name, { detail }))
  const run = async () => {
    let content = ""
    for await (const { data } of llama(prompt, params, config)) {
      content += data.content
      tell("message", data)
      if (data.timings) tell("timings", data.timings)
      if (data.generation_settings) tell("generation_settings", data.generation_settings)
    }
    tell("done", { content })
  }
  run().catch((error) => tell("error", error))
  return target
}

/** Return a promise of the whole text. */
export async function llamaPromise(prompt, params = {}, config = {}) {
  let content = ""
  for await (const { data } of llama(prompt, params, config)) content += data.content
  return content
}

/** Call `callback` with every chunk; `params` has the prompt. Resolves at the end. */
export async function llamaComplete(params, controller, callback) {
  const { prompt, ...options } = params
  for await (const chunk of llama(prompt, options, { controller })) callback(chunk)
}

/** Return the model's default settings from GET /props. */
export async function llamaModelInfo(config = {}) {
  const response = await fetch(address("props", config))
  await check(response)
  return (await response.json()).default_generation_settings
}

// The path is relative, so that it works behind a prefix.
function address(path, config) {
  if (config.api_url) return `${config.api_url.replace(/\/+$/, "")}/${path}`
  return new URL(path, import.meta.url)
}

function headers(key) {
  const common = { "Content-Type": "application/json", Accept: "text/event-stream" }
  return key ? { ...common, Authorization: `Bearer ${key}` } : common
}

async function check(response) {
  if (response.ok) return
  const body = await response.json().catch(() => ({}))
  throw failure(body.error ?? { code: response.status, message: `HTTP status ${response.status}` })
}

function failure({ code, message, type }) {
  return Object.assign(new Error(message), { status: code, type })
}

// Yield the data of server-sent events. An event ends with an empty line; comments keep the connection alive.
async function* events(stream) {
  let rest = ""
  let data = []
  for await (const piece of texts(stream)) {
    const lines = (rest + piece).split(/\r\n|\n/)
    rest = lines.pop()
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(5))
      if (line !== "" || data.length === 0) continue
      const event = data.join("\n").trim()
      data = []
      if (event !== "[DONE]") yield JSON.parse(event)
    }
  }
}

// Not every browser can iterate over a stream.
async function* texts(stream) {
  const reader = stream.getReader()
  const decoder = new TextDecoder()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    yield decoder.decode(value, { stream: true })
  }
}
