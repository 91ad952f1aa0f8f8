// What the page makes of the server's list of models, and of the events about them. Pure.

const LABELS = {
  unloaded: "not loaded",
  loading: "loading",
  sleeping: "asleep",
  failed: "failed",
  downloading: "downloading",
};

/** Return the state of a model: what the server says, but "failed" if it cannot be loaded. */
export function stateOf(model) {
  const { value = "loaded", failed = false } = model?.status ?? {};
  return failed && value === "unloaded" ? "failed" : value;
}

/** Return words for the state of a model, with its progress, or "" if it is loaded. */
export function labelOf(model) {
  const state = stateOf(model);
  const label = LABELS[state] ?? "";
  const progress = model.status?.progress;
  return label && typeof progress === "number" ? `${label}: ${Math.floor(progress * 100)} %` : label;
}

/** Return whether the model answers questions about itself without being loaded for them. */
export function isServed(model) {
  return ["loaded", "sleeping"].includes(stateOf(model));
}

/** Return the model to begin with: the one of the last visit, the server's default, one that is loaded, any. */
export function firstChoice(models, kept, preferred) {
  const named = [kept, preferred].map((id) => models.find((one) => one.id === id || one.aliases?.includes(id)));
  const found =
    named.find(Boolean) ??
    models.find((one) => stateOf(one) === "loaded") ??
    models.find((one) => stateOf(one) !== "failed") ??
    models[0];
  return found?.id ?? "";
}

/** Return what a model that is not loaded takes, in the form of /props. */
export function modalitiesOf(model) {
  const inputs = model?.architecture?.input_modalities ?? [];
  return { vision: inputs.includes("image"), audio: inputs.includes("audio") };
}

/** Return the models with the progress of an event, or null if the list has to be read again because of it. */
export function withProgress(models, { model: id, event, data }) {
  const progress = event === "download_progress" ? downloaded(data?.progress) : loaded(data?.progress);
  const known = models.find((one) => one.id === id);
  if (progress === null || !known) return null;
  const isLoading = event === "download_progress" || data?.status === "loading";
  if (!isLoading) return null;
  const value = event === "download_progress" ? "downloading" : "loading";
  return models.map((one) => (one === known ? { ...one, status: { ...one.status, value, progress } } : one));
}

/** Return the progress of a load from 0 to 1: each of its stages is an equal part. */
function loaded(progress) {
  if (typeof progress?.value !== "number") return null;
  const stages = progress.stages ?? [];
  const at = Math.max(0, stages.indexOf(progress.current));
  return (at + progress.value) / Math.max(1, stages.length);
}

/** Return the progress of a download from 0 to 1, of all its files together. */
function downloaded(files) {
  const all = Object.values(files ?? {});
  const total = all.reduce((sum, one) => sum + one.total, 0);
  return total > 0 ? all.reduce((sum, one) => sum + one.done, 0) / total : null;
}
