// The options of a generation that the settings offer. The server decides values that are not set. Pure data.

/** Groups of fields; names are those of the API, `step` also says whether a value is a whole number. */
export const SAMPLING = [
  {
    title: "Sampling",
    fields: [
      {
        name: "temperature",
        label: "Temperature",
        min: 0,
        max: 5,
        step: 0.05,
        hint: "0 always takes the most likely token.",
      },
      { name: "top_k", label: "Top K", min: 0, max: 1000, step: 1, hint: "Keep the K most likely tokens; 0: all." },
      {
        name: "top_p",
        label: "Top P",
        min: 0,
        max: 1,
        step: 0.01,
        hint: "Keep the most likely tokens up to this total.",
      },
      {
        name: "min_p",
        label: "Min P",
        min: 0,
        max: 1,
        step: 0.01,
        hint: "Least probability, relative to the best token.",
      },
      { name: "n_predict", label: "Longest answer", min: -1, step: 1, hint: "In tokens; -1: no limit." },
      { name: "seed", label: "Seed", min: -1, step: 1, hint: "-1: another one each time." },
    ],
  },
  {
    title: "Penalties",
    fields: [
      { name: "repeat_penalty", label: "Repeat penalty", min: 0.01, max: 10, step: 0.05, hint: "1: off." },
      {
        name: "repeat_last_n",
        label: "Repeat window",
        min: -1,
        step: 1,
        hint: "Tokens looked back at; -1: the context.",
      },
      { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, hint: "0: off." },
      { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, hint: "0: off." },
      {
        name: "dry_multiplier",
        label: "DRY strength",
        min: 0,
        max: 5,
        step: 0.1,
        hint: "Against repeated sequences; 0: off.",
      },
      { name: "dry_base", label: "DRY base", min: 1, max: 4, step: 0.05, hint: "Growth with a repetition's length." },
      {
        name: "dry_allowed_length",
        label: "DRY length",
        min: 0,
        step: 1,
        hint: "Longest repetition without a penalty.",
      },
    ],
  },
  {
    title: "More samplers",
    fields: [
      { name: "typical_p", label: "Typical P", min: 0, max: 1, step: 0.01, hint: "1: off." },
      { name: "top_n_sigma", label: "Top n sigma", min: -1, max: 10, step: 0.1, hint: "-1: off." },
      { name: "xtc_probability", label: "XTC probability", min: 0, max: 1, step: 0.05, hint: "0: off." },
      { name: "xtc_threshold", label: "XTC threshold", min: 0, max: 1, step: 0.05, hint: "Above 0.5: off." },
      { name: "dynatemp_range", label: "Dynamic temperature", min: 0, max: 5, step: 0.05, hint: "Range; 0: off." },
      { name: "mirostat", label: "Mirostat", min: 0, max: 2, step: 1, hint: "Version; 0: off." },
      { name: "mirostat_tau", label: "Mirostat tau", min: 0, max: 20, step: 0.1, hint: "Target entropy." },
      { name: "mirostat_eta", label: "Mirostat eta", min: 0, max: 1, step: 0.01, hint: "Learning rate." },
    ],
  },
];

const FIELDS = new Map(SAMPLING.flatMap((group) => group.fields).map((field) => [field.name, field]));

/** Return the stored settings that can be sent: known names with numbers in their range. */
export function validSampling(kept) {
  return Object.fromEntries(Object.entries(kept ?? {}).filter(([name, value]) => problemWith(name, value) === ""));
}

/** Return what is wrong with a value, or "". */
export function problemWith(name, value) {
  const field = FIELDS.get(name);
  if (!field || typeof value !== "number" || !Number.isFinite(value)) return "Enter a number.";
  if (Number.isInteger(field.step) && !Number.isInteger(value)) return "Enter a whole number.";
  if (field.min !== undefined && value < field.min) return `At least ${field.min}.`;
  if (field.max !== undefined && value > field.max) return `At most ${field.max}.`;
  return "";
}
