// The numbers of the live view over time: turns the counters of /metrics into rates. Pure.

const LENGTH = 120;

/** The last values of one number. */
export class Series {
  constructor() {
    this.values = [];
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > LENGTH) this.values.shift();
  }

  get last() {
    return this.values.at(-1) ?? 0;
  }

  get max() {
    return Math.max(0, ...this.values);
  }
}

/** Return the rates and values of two readings of /metrics that are `seconds` apart; `before` is null for the first. */
export function ratesOf(before, now, seconds) {
  const value = (name) => now.get(name) ?? 0;
  const grown = (name) => (before ? Math.max(0, value(name) - (before.get(name) ?? 0)) : 0);
  const perSecond = (name) => (seconds > 0 ? grown(name) / seconds : 0);
  const computed = value("llamacpp:prompt_tokens_total");
  const cached = value("llamacpp:prompt_tokens_cached_total");
  const drafted = value("llamacpp:spec_decode_num_draft_tokens_total");
  return {
    generated: perSecond("llamacpp:tokens_predicted_total"),
    prompt: perSecond("llamacpp:prompt_tokens_total"),
    busy: value("llamacpp:requests_processing"),
    waiting: value("llamacpp:requests_deferred"),
    cache: value("llamacpp:kv_cache_usage_ratio"),
    reused: computed + cached > 0 ? cached / (computed + cached) : 0,
    again: perSecond("llamad:cache_missed_tokens_total"),
    accepted: drafted > 0 ? value("llamacpp:spec_decode_num_accepted_tokens_total") / drafted : 0,
  };
}

/** Return the points of a line through values, in a box of this size, for an SVG path. */
export function linePath(values, max, width, height) {
  const top = max > 0 ? max : 1;
  const step = width / (LENGTH - 1);
  const start = width - (values.length - 1) * step;
  return values
    .map(
      (value, at) =>
        `${at ? "L" : "M"}${(start + at * step).toFixed(1)} ${(height - (value / top) * height).toFixed(1)}`,
    )
    .join("");
}
