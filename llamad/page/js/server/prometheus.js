// Parses Prometheus's text format. Pure.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)$/;

/**
 * Return the samples by name, as numbers; those that differ only in their labels are summed. With `model`, those of
 * other models are left out.
 */
export function readMetrics(text, model = "") {
  const label = model && `model=${JSON.stringify(model)}`;
  const samples = new Map();
  for (const line of text.split("\n")) {
    const sample = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!sample) continue;
    const [, name, labels = "", number] = sample;
    if (label && /[{,]model="/.test(labels) && !labels.includes(label)) continue;
    const value = Number(number);
    if (Number.isFinite(value)) samples.set(name, (samples.get(name) ?? 0) + value);
  }
  return samples;
}
