// A client of POST /completion for pages and scripts: import it from the server that shall answer.
//
//     import { llama } from "/completion.js"
//
//     for await (const chunk of llama("Once upon a time")) {
//       document.body.append(chunk.data.content)
//     }
//
// Every function takes the same three things:
//
//     prompt   what POST /completion takes as its prompt
//     params   its other options (n_predict, temperature, grammar, ...); api_key is sent as a key, not as an option
//     config   controller: an AbortController of yours; its abort() ends the request
//              api_url: where the server is, if not where this file came from
//
// An error of the server is thrown as an Error with its message, and its `status` and `type`. An abort is thrown as
// fetch() throws it, an error with the name "AbortError". Leaving the loop early ends the request, too.

const DEFAULTS = { stream: true, n_predict: 500 }

/**
 * The text as it is written. Yields a chunk for every event, `chunk.data` being its JSON: `content` is the next piece,
 * and the last one has `stop: true`, `timings` and the rest. The generator returns the whole text.
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
 * The same as events of an EventTarget: "message" for every chunk, its `detail` being the chunk's data; "timings" and
 * "generation_settings" when they come; "done" with `detail.content`, the whole text; "error" with the error.
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

/** A promise of the whole text. */
export async function llamaPromise(prompt, params = {}, config = {}) {
  let content = ""
  for await (const { data } of llama(prompt, params, config)) content += data.content
  return content
}

/** Calls `callback` with every chunk; `params` has the prompt. Resolves at the end. */
export async function llamaComplete(params, controller, callback) {
  const { prompt, ...options } = params
  for await (const chunk of llama(prompt, options, { controller })) callback(chunk)
}

/** What GET /props says about the model's default settings. */
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

// The data of server-sent events. An event ends with an empty line; comments keep the connection alive.
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

// Not every browser can loop over a stream.
async function* texts(stream) {
  const reader = stream.getReader()
  const decoder = new TextDecoder()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    yield decoder.decode(value, { stream: true })
  }
}
