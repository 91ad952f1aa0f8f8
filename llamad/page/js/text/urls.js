// Decides which addresses in a model's text may become links. Pure: no DOM, no network.

const ADDRESS_MAX = 2048;
const ALLOWED = /^(?:https?:\/\/[^\s/]|mailto:[^\s@]+@)/i;
const HIDDEN = /[\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;

/**
 * Return the address if it is plain http, https or mailto, else null. Characters that a browser would strip before it
 * reads the scheme (control characters, spaces, invisible ones) make it unsafe.
 */
export function safeAddress(address) {
  if (address.length > ADDRESS_MAX || HIDDEN.test(address) || !ALLOWED.test(address)) return null;
  return address;
}
