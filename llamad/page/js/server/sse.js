// Owns the reading of an event stream: chunks of text in, the JSON of its events out. Pure.

export class EventReader {
  constructor() {
    this.rest = "";
  }

  /** The events that are complete with this chunk. Comments, and the closing [DONE], are none. */
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
