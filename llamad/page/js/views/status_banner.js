// The line that says why the server cannot be used: it is loading, with its progress, or gone.

import { announce } from "../base/announce.js";
import { fill, h } from "../base/dom.js";
import { percent } from "../base/format.js";
import { status } from "../server/server.js";

const TITLES = {
  ready: "",
  connecting: "Connecting …",
  loading: "The model is loading",
  draining: "The server is shutting down",
  failed: "The model cannot be served",
  unreachable: "The server cannot be reached",
};

/** Return the element, which is hidden while the server is ready. */
export function statusBanner() {
  const element = h("div.banner", { role: "status", hidden: true });
  let last = "";
  status.watch(({ state, message, progress }) => {
    element.hidden = state === "ready" || (state === "connecting" && last === "");
    element.classList.toggle("bad", state === "failed" || state === "unreachable");
    const bar = h("progress", { max: "1", "aria-label": "Loading" });
    if (progress !== null) bar.value = progress;
    fill(
      element,
      h("span", {}, TITLES[state] + (progress !== null ? `: ${percent(Math.floor(progress * 100) / 100)}` : "")),
      state === "loading" && bar,
      state === "failed" && h("span.muted", {}, message),
    );
    if (state === "ready" && last && last !== "ready" && last !== "connecting") announce("The model is ready");
    last = state;
  });
  return element;
}
