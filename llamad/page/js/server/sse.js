// Parses an event stream: takes chunks of text, and returns the JSON of its events. Pure.

export class EventReader {
  constructor() {
    this.rest = "";
  }

  /** Return the events that this chunk completes, without comments and the closing [DONE]. */
  push(chunk) {
    const parts = (this.rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.rest = parts.pop();
    const events = [];
    for (const line of parts) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data && data !== "[DONE]") events.push(JSON.parse(data));
    }
    return events;
  }
}
