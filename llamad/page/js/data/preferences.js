// What the browser stores in addition to conversations: theme, sampling, drafts. In memory if it stores nothing.

const PREFIX = "llamad.";
const memory = new Map();

/** Values by name, stored as JSON. */
export const preferences = {
  get(name, fallback = null) {
    if (memory.has(name)) return memory.get(name);
    try {
      const text = localStorage.getItem(PREFIX + name);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },

  set(name, value) {
    try {
      localStorage.setItem(PREFIX + name, JSON.stringify(value));
      memory.delete(name);
    } catch {
      memory.set(name, value); // there is no room, or no storage
    }
  },
};
