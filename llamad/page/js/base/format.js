// Formats numbers and times for people. Pure.

const whole = new Intl.NumberFormat("en");
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Format a count: 1,234. */
export function count(value) {
  return whole.format(Math.round(value));
}

/** Format a rate or share, with one decimal below 100. */
export function decimal(value) {
  return value >= 100 ? count(value) : tenths.format(value);
}

/** Format a share of 1 as a percentage. */
export function percent(value) {
  return `${decimal(value * 100)} %`;
}

/** Format how many tokens were generated, and how fast, from a response's `timings`. */
export function speedOf(timings) {
  return `${count(timings.predicted_n)} tokens · ${decimal(timings.predicted_per_second)} tokens/s`;
}

/** Round a default that was stored as a 32-bit float: 0.949999988079071 becomes 0.95. */
export function plainNumber(value) {
  return Number.isInteger(value) ? value : Number(value.toPrecision(6));
}

/** Return "Today", "Yesterday", "Last 7 days" or a month, for a list by time. */
export function period(then, now) {
  const day = (time) => new Date(time).setHours(0, 0, 0, 0);
  const days = Math.round((day(now) - day(then)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "Last 7 days";
  return new Date(then).toLocaleDateString("en", { month: "long", year: "numeric" });
}

/** Return the first words of a text as a title. */
export function titleOf(text, lengthMax = 60) {
  const line = text.trim().replace(/\s+/g, " ");
  if (line.length <= lengthMax) return line || "New chat";
  const cut = line.slice(0, lengthMax);
  return `${cut.slice(0, cut.lastIndexOf(" ") > lengthMax / 2 ? cut.lastIndexOf(" ") : lengthMax)}…`;
}
