// Owns tokens as a completion gives them: their bytes, their probabilities, how they are written out. Pure.

const decoder = new TextDecoder();

/** A token with its alternatives, from an item of completion_probabilities. */
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

/** The text of tokens together: a character may be spread over several. */
export function textOf(tokens) {
  return decoder.decode(new Uint8Array(tokens.flatMap((token) => token.bytes)));
}

/** A token as one can see it: blanks have signs, and bytes that are no character their numbers. */
export function visible(token) {
  if (token.text.includes("\ufffd") || (!token.text && token.bytes.length)) {
    return token.bytes.map((byte) => `<${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
  }
  const text = token.text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍");
  return text.replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length)) || "(empty)";
}

/** The prompt that goes on after these tokens: the text, then exactly these tokens. */
export function promptAfter(text, tokens) {
  return tokens.length ? [text, ...tokens.map((token) => token.id)] : text;
}

/** How sure the model was, in five steps: 4 is sure. */
export function sureness(p) {
  if (p >= 0.9) return 4;
  if (p >= 0.6) return 3;
  if (p >= 0.3) return 2;
  return p >= 0.1 ? 1 : 0;
}
