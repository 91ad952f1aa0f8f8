// A streamed request of a view: starts and stops it, and never runs two at once.

import { ApiError, postStream } from "../server/api.js";
import { modelToName } from "../server/server.js";

export class StreamRun {
  constructor(onchange) {
    this.onchange = onchange;
    this.control = null;
  }

  get isBusy() {
    return this.control !== null;
  }

  stop() {
    this.control?.abort();
    this.control = null;
    this.onchange();
  }

  /** Pass each event to `take`. Resolves at the end, with the `error` that ended it, if any. */
  async start(path, body, take) {
    this.control?.abort();
    const control = new AbortController();
    this.control = control;
    this.onchange();
    const model = modelToName();
    let problem = "";
    try {
      for await (const event of postStream(path, { ...(model && { model }), ...body }, control.signal)) {
        if (this.control !== control) break; // another request began
        take(event);
      }
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof ApiError)) throw error;
      if (error instanceof ApiError) problem = error.message;
    } finally {
      if (this.control === control) {
        this.control = null;
        this.onchange();
      }
    }
    return { error: problem };
  }
}
