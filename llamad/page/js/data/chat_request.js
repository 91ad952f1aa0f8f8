// Turns a conversation into a request for /v1/chat/completions, and the events of its response into a message. Pure.

/** A setting is not valid JSON; the message can be shown. */
export class SettingsError extends Error {}

/** Return the body of the request that continues a path of nodes. */
export function chatBody(conversation, path, { model, sampling, thinking = "auto", continues = false }) {
  const body = {
    ...(model && { model }),
    messages: messagesOf(conversation.system, path),
    ...sampling,
    return_progress: true,
    stream_options: { include_usage: true },
  };
  if (continues) body.continue_final_message = true;
  if (thinking !== "auto") body.chat_template_kwargs = { enable_thinking: thinking === "on" };
  if (conversation.format === "json") body.response_format = { type: "json_object" };
  if (conversation.format === "schema") {
    const schema = parsed(conversation.schema, "The JSON schema");
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  }
  if (conversation.tools.trim()) body.tools = toolsOf(conversation.tools);
  return body;
}

/** Return the tools of a JSON text: in OpenAI's form, or bare functions. */
export function toolsOf(text) {
  const value = parsed(text, "The list of tools");
  if (!Array.isArray(value)) throw new SettingsError("The list of tools must be a JSON array.");
  return value.map((tool) => (tool?.type ? tool : { type: "function", function: tool }));
}

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingsError(`${what} is not valid JSON: ${error.message}`);
  }
}

/** Return the messages for the API: the system prompt, then the nodes. */
export function messagesOf(system, path) {
  const messages = system.trim() ? [{ role: "system", content: system }] : [];
  for (const node of path) messages.push(messageOf(node));
  return messages;
}

function messageOf(node) {
  if (node.role === "tool") return { role: "tool", tool_call_id: node.callId, content: node.content };
  if (node.role === "user") return { role: "user", content: node.media?.length ? partsOf(node) : node.content };
  return {
    role: "assistant",
    content: node.content,
    ...(node.reasoning && { reasoning_content: node.reasoning }),
    ...(node.calls?.length && {
      tool_calls: node.calls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
      })),
    }),
  };
}

/** Return the content with the files first, because a prompt must continue after its last file. */
function partsOf(node) {
  const files = node.media.map(({ data }) => {
    if (data.startsWith("data:image/")) return { type: "image_url", image_url: { url: data } };
    return { type: "input_audio", input_audio: { data: data.slice(data.indexOf(",") + 1), format: soundFormat(data) } };
  });
  return [...files, { type: "text", text: node.content }];
}

function soundFormat(data) {
  const kind = data.slice("data:audio/".length, data.indexOf(";"));
  if (kind.includes("wav")) return "wav";
  return kind.includes("flac") ? "flac" : "mp3";
}

/** Add an event of the stream to the message that it belongs to. */
export function addEvent(node, event) {
  const choice = event.choices?.[0];
  const delta = choice?.delta ?? {};
  if (delta.content) node.content += delta.content;
  if (delta.reasoning_content) node.reasoning = (node.reasoning ?? "") + delta.reasoning_content;
  for (const part of delta.tool_calls ?? []) addCall(node, part);
  if (choice?.finish_reason) node.finish = choice.finish_reason;
  if (event.timings) node.timings = numbersOf(event.timings);
  if (event.model) node.model = event.model;
}

function addCall(node, part) {
  node.calls ??= [];
  const call = (node.calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" });
  if (part.id) call.id = part.id;
  call.name += part.function?.name ?? "";
  call.arguments += part.function?.arguments ?? "";
}

function numbersOf(timings) {
  return Object.fromEntries(Object.entries(timings).filter(([, value]) => Number.isFinite(value)));
}
