// Owns what the browser keeps beside conversations: theme, sampling, drafts. In memory where it keeps nothing.

const PREFIX = "llamad.";
const memory = new Map();

/** Values by name, kept as JSON. */
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
      memory.set(name, value); // no room, or no storage
    }
  },
};
