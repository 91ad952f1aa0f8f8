// Runs before the page is drawn, so that a chosen theme does not flash. views/theme.js owns the choice.
try {
  const theme = JSON.parse(localStorage.getItem("llamad.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // nothing is stored, so the system's theme is used
}
