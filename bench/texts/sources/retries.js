// Requests that are sent again: with pauses that grow, and never more often than a server says.

const PAUSE_FIRST_MS = 200;
const PAUSE_MAX_MS = 30_000;

class GaveUp extends Error {
  constructor(cause, attempts) {
    super(`gave up after ${attempts} attempts: ${cause.message}`);
    this.cause = cause;
    this.attempts = attempts;
  }
}

function isTemporary(status) {
  return status === 429 || status === 502 || status === 503 || status === 504;
}

function pauseMs(attempt, random = Math.random) {
  const full = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** attempt);
  // Half of it is random, so that many clients do not come back together.
  return full / 2 + (random() * full) / 2;
}

function retryAfterMs(response) {
  const value = response.headers.get("retry-after");
  if (value === null) {
    return null;
  }
  const seconds = Number(value);
  if (Number.isFinite(seconds)) {
    return Math.max(0, seconds * 1000);
  }
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, date - Date.now());
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

async function fetchAgain(url, options = {}, attempts = 5) {
  let last = new Error("nothing was tried");
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    let wait = pauseMs(attempt);
    try {
      const response = await fetch(url, options);
      if (!isTemporary(response.status)) {
        return response;
      }
      last = new Error(`the server answered ${response.status}`);
      wait = retryAfterMs(response) ?? wait;
    } catch (error) {
      if (options.signal?.aborted) {
        throw error;
      }
      last = error;
    }
    await sleep(wait, options.signal);
  }
  throw new GaveUp(last, attempts);
}

export { GaveUp, fetchAgain, isTemporary, pauseMs, retryAfterMs };
