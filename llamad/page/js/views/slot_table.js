// The table of slots.

import { h } from "../base/dom.js";
import { count } from "../base/format.js";

/** Return the table for a response of /slots. */
export function slotTable(slots) {
  const heads = ["Slot", "State", "Tokens held", "Generated", "From cache"];
  return h(
    "div.table-scroll",
    { tabindex: "0", role: "group", "aria-label": "Slots" },
    h(
      "table.slots",
      {},
      h("caption", {}, "Slots"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col" }, head)),
        ),
      ),
      h("tbody", {}, slots.map(slotRow)),
    ),
  );
}

function slotRow(slot) {
  const state = slot.is_suspended ? "suspended" : slot.is_processing ? stateOf(slot) : "idle";
  const meter = h("span.meter", { "aria-hidden": "true" });
  meter.style.setProperty("--share", String(slot.n_ctx > 0 ? Math.min(1, slot.n_tokens / slot.n_ctx) : 0));
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, String(slot.id)),
    h("td", {}, h(`span.state.${state}`, {}, state)),
    h("td", {}, `${count(slot.n_tokens)} of ${count(slot.n_ctx)}`, meter),
    h("td", {}, count(slot.next_token?.n_decoded ?? 0)),
    h("td", {}, count(slot.n_prompt_tokens_cache ?? 0)),
  );
}

function stateOf(slot) {
  return (slot.next_token?.n_decoded ?? 0) > 0 ? "writing" : "reading";
}
