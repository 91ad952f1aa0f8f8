// Parses Prometheus's text format. Pure.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)$/;

/** Return the samples by name, as numbers; those that differ only in their labels are summed. */
export function readMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const sample = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!sample) continue;
    const [, name, , number] = sample;
    const value = Number(number);
    if (Number.isFinite(value)) samples.set(name, (samples.get(name) ?? 0) + value);
  }
  return samples;
}
