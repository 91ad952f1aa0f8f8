// The answers that are being written: at most one per conversation. They go on while another view is shown.

import { ApiError, postStream } from "../server/api.js";
import { addEvent, chatBody, SettingsError } from "../data/chat_request.js";
import * as library from "../data/library.js";
import { preferences } from "../data/preferences.js";
import { validSampling } from "../data/sampling.js";
import { pathTo } from "../data/tree.js";
import { check, modelToName } from "../server/server.js";

const running = new Map(); // the id of a conversation → its Generation

/** Return the generation of a conversation, or undefined. */
export function generationOf(conversation) {
  return running.get(conversation.id);
}

/** One answer: `phase` is waiting, reading (with `progress` from 0 to 1) or writing. */
class Generation {
  constructor(conversation, node) {
    this.conversation = conversation;
    this.node = node;
    this.phase = "waiting";
    this.progress = 0;
    this.control = new AbortController();
    this.onchange = () => {}; // set by the view
  }

  stop() {
    this.control.abort();
  }

  async run(continues) {
    const { conversation, node } = this;
    const before = continues ? node.id : node.parent;
    try {
      const body = chatBody(conversation, pathTo(conversation, before), {
        model: modelToName(),
        sampling: validSampling(preferences.get("sampling")),
        thinking: preferences.get("thinking", "auto"),
        continues,
      });
      for await (const event of postStream("v1/chat/completions", body, this.control.signal)) this.take(event);
    } catch (error) {
      this.fail(error);
    }
    if (node.finish === "length") node.isStopped = true;
    conversation.updated = Date.now();
    running.delete(conversation.id);
    await library.save(conversation);
    this.onchange(true);
  }

  take(event) {
    const read = event.prompt_progress;
    if (read) {
      this.phase = "reading";
      this.progress = read.total > 0 ? read.processed / read.total : 0;
    }
    const lengthBefore = this.node.content.length + (this.node.reasoning?.length ?? 0);
    addEvent(this.node, event);
    if (this.node.calls || this.node.content.length + (this.node.reasoning?.length ?? 0) > lengthBefore) {
      this.phase = "writing";
    }
    library.saveSoon(this.conversation);
    this.onchange(false);
  }

  fail(error) {
    this.node.isStopped = true;
    if (error.name === "AbortError") return;
    if (!(error instanceof ApiError || error instanceof SettingsError)) throw error;
    this.node.error = error.message;
    if (error.status === 0 || error.status === 503) check(); // updates the state of the server
  }
}

/** Generate an answer into a node; with `continues`, append to its text. */
export function generate(conversation, node, continues = false) {
  generationOf(conversation)?.stop();
  delete node.error;
  delete node.isStopped;
  delete node.finish;
  const generation = new Generation(conversation, node);
  running.set(conversation.id, generation);
  generation.run(continues);
  return generation;
}
