// Follows the events of a server with many models. It reconnects, and does not hold a connection while the page is
// hidden: a browser opens only a few to one server, and all tabs share them.

import { ApiError, currentKey, getStream } from "./api.js";

const RETRY_MS = 1000;

/** Call `onOpen` whenever the stream has begun, because events may have been missed, and `onEvent` with each event. */
export function followModels(onOpen, onEvent) {
  let control = null; // of the stream that runs

  const run = async () => {
    if (control) return;
    control = new AbortController();
    while (!document.hidden) {
      const key = currentKey();
      try {
        for await (const event of getStream("models/sse", control.signal, onOpen)) onEvent(event);
      } catch (error) {
        if (error.name === "AbortError") break;
        if (!(error instanceof ApiError)) throw error;
        // Without a key the list is still read now and then.
        while (error.status === 401 && currentKey() === key && !document.hidden) await pause();
      }
      await pause();
    }
    control = null;
    if (!document.hidden) run(); // it was shown again meanwhile
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? control?.abort() : run()));
  run();
}

function pause() {
  return new Promise((resume) => setTimeout(resume, RETRY_MS));
}
