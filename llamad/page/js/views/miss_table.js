// The table of prompts that were computed again although the server knew them: the last request of each slot.

import { h } from "../base/dom.js";
import { count } from "../base/format.js";

const REASONS = {
  changed: "the prompt changed",
  evicted: "the cache had no room",
  adapters: "other adapters",
  other: "the request did not use the cache",
};

/** Return the table for a response of /slots, or null if no slot has a cache miss. */
export function missTable(slots) {
  const missed = slots.filter((slot) => slot.cache_miss);
  if (missed.length === 0) return null;
  const heads = ["Slot", "Tokens", "From", "Why", "Before", "Now"];
  return h(
    "div.table-scroll",
    { tabindex: "0", role: "group", "aria-label": "Computed again" },
    h(
      "table.slots.misses",
      {},
      h("caption", {}, "Computed again"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col" }, head)),
        ),
      ),
      h("tbody", {}, missed.map(missRow)),
    ),
  );
}

function missRow({ id, cache_miss: miss }) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, String(id)),
    h("td", {}, count(miss.n)),
    h("td", {}, `${miss.part}, token ${count(miss.at)}`),
    h("td", {}, REASONS[miss.reason] ?? miss.reason),
    h("td", {}, h("code", {}, miss.was ?? "")),
    h("td", {}, h("code", {}, miss.is ?? "")),
  );
}
