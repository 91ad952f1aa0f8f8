// A streamed chat over OpenAI's API with nothing but fetch(). Node.js 18 or later: node stream_chat.mjs "A question"
const URL_BASE = process.env.LLAMAD_URL ?? "http://127.0.0.1:8080"

const response = await fetch(`${URL_BASE}/v1/chat/completions`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({
    messages: [{ role: "user", content: process.argv[2] ?? "What is the capital of France?" }],
    max_tokens: 64,
    temperature: 0,
    stream: true,
  }),
})
if (!response.ok) throw new Error(await response.text())

// Events are lines that begin with "data: "; the network may cut them anywhere.
let rest = ""
for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + piece).split("\n")
  rest = lines.pop()
  for (const line of lines) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue
    const { choices, error } = JSON.parse(line.slice(6))
    if (error) throw new Error(error.message)
    process.stdout.write(choices[0]?.delta.content ?? "")
  }
}
process.stdout.write("\n")
