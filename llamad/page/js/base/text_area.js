// Text areas that grow with their text.

/** Make an area as high as its text; its CSS sets the limit. */
export function growWithText(area) {
  const fit = () => {
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
  };
  area.addEventListener("input", fit);
  requestAnimationFrame(fit);
  return fit;
}
