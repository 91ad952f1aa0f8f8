// The keyboard shortcuts that work everywhere on the page.

/** Listen to the shortcuts. In a text field only those with Alt work. */
export function listenToKeys({ newChat, settings, help }) {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.isComposing) return;
    const act = actionOf(event, { newChat, settings, help });
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function actionOf(event, { newChat, settings, help }) {
  if (event.altKey && !event.ctrlKey && !event.metaKey) return { KeyN: newChat, KeyS: settings }[event.code];
  const isWriting = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (isWriting || event.ctrlKey || event.metaKey) return undefined;
  if (event.key === "/") return () => document.getElementById("composer")?.focus();
  return event.key === "?" ? help : undefined;
}
