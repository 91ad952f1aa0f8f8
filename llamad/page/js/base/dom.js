// Makes elements. Children that are strings become text; nothing here parses HTML.

/**
 * h("button.primary", {type: "button", onclick: f, hidden: true}, "Send", [icon, null]): an element with classes,
 * listeners (on…), properties for booleans and values, attributes for the rest. Null and false are left out.
 */
export function h(spec, attributes = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (value === true || name === "value") element[name] = value;
  else element.setAttribute(name, value);
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replace all children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Give an element these children. Those that stay are not touched, so that they keep the focus and the selection. */
export function reconcile(element, children) {
  let at = element.firstChild;
  for (const child of children) {
    if (child === at) at = at.nextSibling;
    else element.insertBefore(child, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Return a number that is unique on this page, for ids that labels refer to. */
let lastId = 0;
export function uniqueId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}
