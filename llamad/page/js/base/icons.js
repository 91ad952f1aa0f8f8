// The icons: strokes on a grid of 24, drawn for this page.

const SHAPES = {
  add: "M12 5v14M5 12h14",
  arrowDown: "M12 5v14M6 13l6 6 6-6",
  arrowUp: "M12 19V5M6 11l6-6 6 6",
  attach: "M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4l7.8-7.8",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  back: "M15 5l-7 7 7 7",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h9a1.5 1.5 0 0 1 1.5 1.5v8A1.5 1.5 0 0 1 18 20h-7.5A1.5 1.5 0 0 1 9 18.5zM15 9V5.5A1.5 1.5 0 0 0 13.5 4H6a1.5 1.5 0 0 0-1.5 1.5V13A1.5 1.5 0 0 0 6 14.5h3",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  edit: "M4 20l1-4L16.5 4.5a2.1 2.1 0 0 1 3 3L8 19z",
  forward: "M9 5l7 7-7 7",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.7.4-1.1.9-1.1 1.8M12 16.8v.1",
  infill: "M4 6h16M4 18h16M4 12h3M17 12h3M10 12h4",
  live: "M3 12h4l3-7 4 14 3-7h4",
  menu: "M4 7h16M4 12h16M4 17h16",
  models: "M12 3.5l8 4-8 4-8-4zM4 12l8 4 8-4M4 16.5l8 4 8-4",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z",
  more: "M6 12v.1M12 12v.1M18 12v.1",
  play: "M8 5.5v13l10.5-6.5z",
  redo: "M19 12a7 7 0 1 1-2.1-5M19 4v4h-4",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.8v4.4M9 14.8v4.4",
  stop: "M7 7h10v10H7z",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.4 1.4M17 17l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4",
  text: "M5 6h14M5 10h14M5 14h9M5 18h6",
  thought: "M9 17h6M10 20h4M12 3.5a6 6 0 0 0-3.5 10.9c.4.3.5.6.5 1.1V17h6v-1.5c0-.5.2-.8.5-1.1A6 6 0 0 0 12 3.5z",
  tool: "M14.5 6.5a4 4 0 0 1 5-1.5L17 7.5l.5 2 2 .5L22 7.5a4 4 0 0 1-5.5 5L9 20a2.1 2.1 0 0 1-3-3l7.5-7.5a4 4 0 0 1 1-3z",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  upload: "M12 15V4M7 8.5l5-5 5 5M5 20h14",
};

const SVG = "http://www.w3.org/2000/svg";

/** Return an icon by its name. Screen readers ignore it, because its button has the words. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}
