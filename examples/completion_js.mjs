// /completion.js outside a browser: the text as it comes, all of it, and as events. node completion_js.mjs
// In a page it is one line: import { llama } from "/completion.js"
const URL_BASE = process.env.LLAMAD_URL ?? "http://127.0.0.1:8080"

const source = await (await fetch(`${URL_BASE}/completion.js`)).text()
const { llama, llamaEventTarget, llamaPromise } = await import(`data:text/javascript,${encodeURIComponent(source)}`)

const prompt = "The capital of France is"
const params = { n_predict: 12, temperature: 0 }
const config = { api_url: URL_BASE }

for await (const chunk of llama(prompt, params, config)) process.stdout.write(chunk.data.content)
console.log()

console.log(await llamaPromise(prompt, params, config))

const events = llamaEventTarget(prompt, params, config)
events.addEventListener("message", (event) => process.stdout.write(`${event.detail.content}|`))
events.addEventListener("done", (event) => console.log(`\n${event.detail.content.length} characters`))
events.addEventListener("error", (event) => console.error(event.detail))
