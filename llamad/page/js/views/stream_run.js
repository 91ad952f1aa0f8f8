// Owns one streamed request of a view: started, stopped, and never two at once.

import { ApiError, postStream } from "../server/api.js";
import { chosenModel, models } from "../server/server.js";

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

  /** Give each event to `take`. Resolves at the end, with the `error` that ended it, if one did. */
  async start(path, body, take) {
    this.control?.abort();
    const control = new AbortController();
    this.control = control;
    this.onchange();
    const model = models.value.length > 1 ? { model: chosenModel.value } : {};
    let problem = "";
    try {
      for await (const event of postStream(path, { ...model, ...body }, control.signal)) {
        if (this.control !== control) break; // another one began
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
