// A chat in the terminal over POST /completion, with a transcript as the prompt. Node.js 16 or later: node chat.mjs
// The server re-uses what it has read of the transcript, so that each turn costs only its own tokens.
import http from "node:http"
import https from "node:https"
import readline from "node:readline"

const URL_BASE = process.env.LLAMAD_URL ?? "http://127.0.0.1:8080"
const INSTRUCTION =
  "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful and short answers."
const turns = [["Hello, Assistant.", "Hello. How may I help you today?"]]

const transcript = (question) =>
  [INSTRUCTION, ...turns.map(([human, assistant]) => `### Human: ${human}\n### Assistant: ${assistant}`)].join("\n") +
  `\n### Human: ${question}\n### Assistant:`

// Node.js 16 has no fetch().
function post(path, body) {
  const url = new URL(path, URL_BASE)
  return new Promise((resolve, reject) => {
    const client = url.protocol === "https:" ? https : http
    client.request(url, { method: "POST" }, resolve).on("error", reject).end(JSON.stringify(body))
  })
}

async function* completion(prompt) {
  const response = await post("/completion", {
    prompt,
    stream: true,
    cache_prompt: true,
    n_predict: 256,
    temperature: 0.2,
    stop: ["\n### Human:"],
  })
  for await (const line of readline.createInterface({ input: response })) {
    if (response.statusCode !== 200) throw new Error(line)
    if (line.startsWith("data: ")) yield JSON.parse(line.slice(6))
  }
}

async function answer(question) {
  let text = ""
  process.stdout.write("Assistant:")
  for await (const event of completion(transcript(question))) {
    if (event.error) throw new Error(event.error.message)
    process.stdout.write(event.content)
    text += event.content
  }
  process.stdout.write("\n")
  turns.push([question, text.trim()])
}

const input = readline.createInterface({ input: process.stdin, output: process.stdout, prompt: "> " })
input.prompt()
for await (const question of input) {
  if (question.trim()) await answer(question.trim())
  input.prompt()
}
process.stdout.write("\n")
