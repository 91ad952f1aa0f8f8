// Lets files be dropped onto a conversation.

import { h } from "../base/dom.js";
import { icon } from "../base/icons.js";

/** Add files that are dropped on an element to its attachments. Returns a function that ends this. */
export function acceptDrops(element, attachments) {
  const veil = h(
    "div.drop-veil",
    { hidden: true, "aria-hidden": "true" },
    icon("attach"),
    h("p", {}, "Drop to attach"),
  );
  element.append(veil);
  let depth = 0; // dragenter and dragleave are sent for every child
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const on = {
    dragenter: (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      depth += 1;
      veil.hidden = false;
    },
    dragover: (event) => {
      if (hasFiles(event)) event.preventDefault();
    },
    dragleave: () => {
      depth = Math.max(0, depth - 1);
      veil.hidden = depth === 0;
    },
    drop: (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      depth = 0;
      veil.hidden = true;
      attachments.add([...event.dataTransfer.files]);
    },
  };
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  return () => {
    for (const [name, listener] of Object.entries(on)) element.removeEventListener(name, listener);
  };
}
