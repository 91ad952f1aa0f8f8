// Owns the reading of Prometheus's text format. Pure.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)$/;

/** Samples without labels by name, as numbers; those with labels are summed. */
export function readMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!found) continue;
    const value = Number(found[3]);
    if (Number.isFinite(value)) samples.set(found[1], (samples.get(found[1]) ?? 0) + value);
  }
  return samples;
}
