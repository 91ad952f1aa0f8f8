// Conversations: trees of messages, files, requests, streams, tokens, numbers over time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { addEvent, chatBody, SettingsError, toolsOf } from "../../../llamad/page/js/data/chat_request.js";
import { exported, imported, newConversation } from "../../../llamad/page/js/data/conversation.js";
import { problemWith, validSampling } from "../../../llamad/page/js/data/sampling.js";
import { linePath, ratesOf, Series } from "../../../llamad/page/js/data/series.js";
import { promptAfter, sureness, textOf, tokenOf, visible } from "../../../llamad/page/js/data/token_text.js";
import * as tree from "../../../llamad/page/js/data/tree.js";
import { period, plainNumber, titleOf } from "../../../llamad/page/js/base/format.js";
import { readMetrics } from "../../../llamad/page/js/server/prometheus.js";
import { EventReader } from "../../../llamad/page/js/server/sse.js";

const PIXEL = "data:image/png;base64,iVBORw0KGgo=";

function sample() {
  const conversation = newConversation({ system: "Be brief." });
  const question = tree.addNode(conversation, null, { role: "user", content: "Q" });
  const first = tree.addNode(conversation, question.id, { role: "assistant", content: "A1" });
  const second = tree.addNode(conversation, question.id, { role: "assistant", content: "A2", reasoning: "hm" });
  return { conversation, question, first, second };
}

const shown = (conversation) => tree.shownPath(conversation).map((node) => node.content);

test("branches", () => {
  const { conversation, question, first, second } = sample();
  assert.deepEqual(shown(conversation), ["Q", "A2"]);
  assert.deepEqual(tree.placeOf(conversation, second.id), { at: 1, count: 2 });
  tree.chooseSibling(conversation, second.id, -1);
  assert.deepEqual(shown(conversation), ["Q", "A1"]);
  tree.chooseSibling(conversation, first.id, -1);
  assert.deepEqual(shown(conversation), ["Q", "A1"]);
  tree.addNode(conversation, null, { role: "user", content: "Q edited" });
  assert.deepEqual(shown(conversation), ["Q edited"]);
  tree.chooseSibling(conversation, tree.shownPath(conversation)[0].id, -1);
  assert.deepEqual(shown(conversation), ["Q", "A1"]);
  tree.removeNode(conversation, question.id);
  assert.deepEqual(shown(conversation), ["Q edited"]);
  assert.equal(Object.keys(conversation.nodes).length, 1);
});

test("an exported conversation is the same when it is imported, with an id of its own", () => {
  const { conversation } = sample();
  conversation.nodes.m1.media = [{ name: "dot.png", data: PIXEL }];
  conversation.nodes.m3.calls = [{ id: "c", name: "f", arguments: "{}" }];
  conversation.nodes.m3.timings = { predicted_n: 3 };
  const [copy] = imported(JSON.stringify(exported([conversation])));
  assert.notEqual(copy.id, conversation.id);
  assert.deepEqual({ ...copy, id: "" }, { ...conversation, id: "" });
});

test("a stranger's file is refused, or cleaned", () => {
  const file = (nodes) => JSON.stringify({ format: "llamad-conversations", version: 1, conversations: [{ nodes }] });
  for (const text of ["", "[]", "{}", '{"format": "llamad-conversations", "version": 9, "conversations": []}']) {
    assert.throws(() => imported(text), /The file/);
  }
  const refused = [
    { m1: { id: "m1", parent: "m1", role: "user" } },
    { m1: { id: "m1", parent: "m2", role: "user" }, m2: { id: "m2", parent: "m1", role: "user" } },
    { m1: { id: "__proto__", parent: null, role: "user" } },
    { m1: { id: "m1", parent: null, role: "admin" } },
    { m1: { id: "m1", parent: null, role: "user", media: [{ data: "https://evil.example/x.png" }] } },
    { m1: { id: "m1", parent: null, role: "user", media: [{ data: "data:image/svg+xml;base64,AA==" }] } },
  ];
  for (const nodes of refused) assert.throws(() => imported(file(nodes)), /The file/);
  const [cleaned] = imported(
    file({ m1: { id: "m1", parent: null, role: "user", content: 7, extra: "x", timings: { a: "b" } } }),
  );
  assert.deepEqual(cleaned.nodes.m1, { id: "m1", parent: null, role: "user", content: "", timings: {} });
});

test("a request", () => {
  const { conversation, question, second } = sample();
  question.media = [
    { name: "dot.png", data: PIXEL },
    { name: "a.mp3", data: "data:audio/mpeg;base64,QUJD" },
  ];
  second.calls = [{ id: "c1", name: "f", arguments: '{"a":1}' }];
  const result = tree.addNode(conversation, second.id, { role: "tool", callId: "c1", content: "7" });
  const body = chatBody(conversation, tree.pathTo(conversation, result.id), {
    model: "m",
    sampling: { top_k: 5 },
    thinking: "off",
  });
  assert.deepEqual(body.messages, [
    { role: "system", content: "Be brief." },
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: PIXEL } },
        { type: "input_audio", input_audio: { data: "QUJD", format: "mp3" } },
        { type: "text", text: "Q" },
      ],
    },
    {
      role: "assistant",
      content: "A2",
      reasoning_content: "hm",
      tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: '{"a":1}' } }],
    },
    { role: "tool", tool_call_id: "c1", content: "7" },
  ]);
  assert.deepEqual([body.model, body.top_k, body.chat_template_kwargs], ["m", 5, { enable_thinking: false }]);
  assert.ok(!("response_format" in body) && !("tools" in body));
});

test("a schema and tools", () => {
  const { conversation } = sample();
  conversation.format = "schema";
  conversation.schema = '{"type": "object"}';
  conversation.tools = '[{"name": "f"}, {"type": "function", "function": {"name": "g"}}]';
  const body = chatBody(conversation, [], { sampling: {} });
  assert.deepEqual(body.response_format.json_schema.schema, { type: "object" });
  assert.deepEqual(
    body.tools.map((tool) => tool.function.name),
    ["f", "g"],
  );
  conversation.schema = "{";
  assert.throws(() => chatBody(conversation, [], { sampling: {} }), SettingsError);
  assert.throws(() => toolsOf("{}"), SettingsError);
});

test("the events of an answer", () => {
  const node = { content: "" };
  const delta = (value, more = {}) => addEvent(node, { choices: [{ delta: value, ...more }] });
  delta({ role: "assistant", content: null });
  delta({ reasoning_content: "I " });
  delta({ reasoning_content: "think" });
  delta({ content: "So" });
  delta({ tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: "{" } }] });
  delta({ tool_calls: [{ index: 0, function: { arguments: "}" } }] });
  delta({}, { finish_reason: "tool_calls" });
  addEvent(node, { choices: [], usage: {}, timings: { predicted_n: 4, note: "x" } });
  assert.deepEqual(node, {
    content: "So",
    reasoning: "I think",
    calls: [{ id: "c", name: "f", arguments: "{}" }],
    finish: "tool_calls",
    timings: { predicted_n: 4 },
  });
});

test("a stream, in pieces of every length", () => {
  const text = ': ping\r\n\r\ndata: {"a":"x\\ny"}\n\ndata:{"b":1}\r\n\r\nevent: e\ndata: [DONE]\n\n';
  for (let length = 1; length <= text.length; length += 1) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < text.length; at += length) events.push(...reader.push(text.slice(at, at + length)));
    assert.deepEqual(events, [{ a: "x\ny" }, { b: 1 }], `pieces of ${length}`);
  }
});

test("tokens", () => {
  const item = (id, bytes, logprob, top = []) => ({
    id,
    token: new TextDecoder().decode(new Uint8Array(bytes)),
    bytes,
    logprob,
    top_logprobs: top,
  });
  const first = tokenOf(
    item(1, [0xc3], Math.log(0.5), [item(1, [0xc3], Math.log(0.5)), item(9, [32, 97], Math.log(0.25))]),
  );
  const second = tokenOf(item(2, [0xa9], 0));
  assert.equal(visible(first), "<C3>");
  assert.equal(textOf([first, second]), "é");
  assert.equal(visible(first.others[1]), "␣a");
  assert.ok(Math.abs(first.others[1].p - 0.25) < 1e-9);
  assert.deepEqual(promptAfter("x", [first, second]), ["x", 1, 2]);
  assert.equal(promptAfter("x", []), "x");
  assert.deepEqual([0.95, 0.7, 0.4, 0.2, 0.01].map(sureness), [4, 3, 2, 1, 0]);
});

test("sampling: what can be sent", () => {
  assert.deepEqual(validSampling({ top_k: 40, temperature: 9, top_p: "1", seed: 1.5, unknown: 1 }), { top_k: 40 });
  assert.equal(problemWith("top_p", 2), "At most 1.");
  assert.deepEqual(validSampling(null), {});
});

test("metrics and rates", () => {
  const before = readMetrics("# HELP x\nllamacpp:tokens_predicted_total 10\n");
  const now = readMetrics(
    "llamacpp:tokens_predicted_total 30\nllamacpp:prompt_tokens_total 25\nllamacpp:prompt_tokens_cached_total 75\n" +
      'x{a="1"} 2\nx{a="2"} 3\n' +
      'llamad:cache_missed_tokens_total{reason="changed"} 70\n' +
      'llamad:cache_missed_tokens_total{reason="evicted"} 30\n' +
      "llamacpp:spec_decode_num_draft_tokens_total 8\nllamacpp:spec_decode_num_accepted_tokens_total 2\n",
  );
  assert.equal(now.get("x"), 5);
  const rates = ratesOf(before, now, 2);
  assert.deepEqual([rates.generated, rates.reused, rates.accepted, rates.again], [10, 0.75, 0.25, 50]);
  assert.equal(ratesOf(null, now, 0).generated, 0);
  assert.equal(ratesOf(now, before, 1).generated, 0); // the server was started again
  const series = new Series();
  for (let n = 0; n < 500; n += 1) series.add(n);
  assert.deepEqual([series.values.length, series.last, series.max], [120, 499, 499]);
  assert.equal(linePath([0, 2], 2, 119, 10), "M118.0 10.0L119.0 0.0");
});

test("words and numbers", () => {
  assert.equal(titleOf("  How do\nI  do it? "), "How do I do it?");
  assert.equal(titleOf(`${"word ".repeat(30)}`).at(-1), "…");
  assert.ok(titleOf("x".repeat(500)).length <= 61);
  assert.equal(plainNumber(0.949999988079071), 0.95);
  const noon = new Date(2026, 4, 20, 12).getTime();
  assert.deepEqual(
    [0, 20, 100, 24 * 60].map((hours) => period(noon - hours * 3_600_000, noon)),
    ["Today", "Yesterday", "Last 7 days", "March 2026"],
  );
});
