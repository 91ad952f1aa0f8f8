// The tokens of a completion: their bytes, their probabilities, and how they are shown. Pure.

const decoder = new TextDecoder();

/** Return a token with its alternatives, from an item of completion_probabilities. */
export function tokenOf(item) {
  const { id, token, bytes, logprob } = item;
  const others = item.top_logprobs ?? [];
  return {
    id,
    text: token,
    bytes: bytes ?? [],
    p: Math.exp(logprob),
    others: others.map((one) => tokenOf({ ...one, top_logprobs: [] })),
  };
}

/** Return the text of several tokens together, because a character may be spread over them. */
export function textOf(tokens) {
  return decoder.decode(new Uint8Array(tokens.flatMap((token) => token.bytes)));
}

/** Return a token in visible form: blanks become symbols, and bytes that are not a character become numbers. */
export function visible(token) {
  if (token.text.includes("\ufffd") || (!token.text && token.bytes.length)) {
    return token.bytes.map((byte) => `<${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
  }
  const text = token.text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍");
  return text.replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length)) || "(empty)";
}

/** Return the prompt that continues after these tokens: the text, then exactly these tokens. */
export function promptAfter(text, tokens) {
  return tokens.length ? [text, ...tokens.map((token) => token.id)] : text;
}

/** Return how sure the model was, from 0 to 4. */
export function sureness(p) {
  if (p >= 0.9) return 4;
  if (p >= 0.6) return 3;
  if (p >= 0.3) return 2;
  return p >= 0.1 ? 1 : 0;
}
