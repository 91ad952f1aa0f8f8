// The list of models of a server that has many, and the events about them.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  firstChoice,
  isServed,
  labelOf,
  modalitiesOf,
  stateOf,
  withProgress,
} from "../../../llamad/page/js/data/model_list.js";
import { readMetrics } from "../../../llamad/page/js/server/prometheus.js";

const model = (id, value, more = {}) => ({ id, aliases: [], status: { value, ...more } });

test("states and their words", () => {
  assert.equal(labelOf(model("a", "loaded")), "");
  assert.equal(labelOf({ id: "a" }), ""); // other servers have no status
  assert.equal(labelOf(model("a", "unloaded")), "not loaded");
  assert.equal(labelOf(model("a", "unloaded", { failed: true })), "failed");
  assert.equal(labelOf(model("a", "loading")), "loading");
  assert.equal(labelOf(model("a", "loading", { progress: 0.429 })), "loading: 42 %");
  assert.equal(stateOf(model("a", "loading", { failed: true })), "loading"); // it is tried again
  assert.deepEqual(["loaded", "sleeping", "loading", "unloaded"].map((one) => isServed(model("a", one))), [
    true,
    true,
    false,
    false,
  ]);
});

test("the first choice", () => {
  const all = [
    model("broken", "unloaded", { failed: true }),
    { ...model("cold", "unloaded"), aliases: ["c"] },
    model("warm", "loaded"),
  ];
  assert.equal(firstChoice(all, "cold", "warm"), "cold");
  assert.equal(firstChoice(all, "gone", "c"), "cold");
  assert.equal(firstChoice(all, null, ""), "warm");
  assert.equal(firstChoice(all.slice(0, 2), null, ""), "cold");
  assert.equal(firstChoice(all.slice(0, 1), null, ""), "broken");
  assert.equal(firstChoice([], null, ""), "");
});

test("modalities of a model that is not loaded", () => {
  assert.deepEqual(modalitiesOf({ architecture: { input_modalities: ["text", "image"] } }), {
    vision: true,
    audio: false,
  });
  assert.deepEqual(modalitiesOf(undefined), { vision: false, audio: false });
});

test("events with progress change the list, others ask for a new one", () => {
  const all = [model("a", "unloaded"), model("b", "loaded")];
  const load = { stages: ["text_model", "mmproj_model"], current: "mmproj_model", value: 0.5 };
  const event = { model: "a", event: "status_change", data: { status: "loading", progress: load } };
  const [changed, other] = withProgress(all, event);
  assert.deepEqual(changed.status, { value: "loading", progress: 0.75 });
  assert.equal(other, all[1]);
  const files = { one: { done: 1, total: 3 }, two: { done: 1, total: 1 } };
  const [downloading] = withProgress(all, { model: "a", event: "download_progress", data: { progress: files } });
  assert.deepEqual(downloading.status, { value: "downloading", progress: 0.5 });
  assert.equal(withProgress(all, { model: "none", event: "status_change", data: event.data }), null);
  assert.equal(withProgress(all, { model: "a", event: "status_change", data: { status: "loaded" } }), null);
  assert.equal(withProgress(all, { model: "*", event: "models_reload" }), null);
});

test("metrics of one model", () => {
  const text = 'a{model="x"} 1\na{model="y",le="1"} 2\na{model="y\\"z"} 4\nb 8\nb{endpoint="/"} 16\n';
  assert.deepEqual([...readMetrics(text, "y")], [["a", 2], ["b", 24]]);
  assert.deepEqual([...readMetrics(text, 'y"z')], [["a", 4], ["b", 24]]);
  assert.deepEqual([...readMetrics(text)], [["a", 7], ["b", 24]]);
});
