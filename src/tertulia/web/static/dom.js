// Creates elements without ever parsing markup: messages go through text nodes and stay text.

/**
 * The element with this id; a missing one is a bug, so it throws.
 * @param {string} id
 * @returns {any}
 */
export function $(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`The page has no element #${id}`);
  return element;
}

/**
 * A new element. `on...` adds a listener, true and false set or leave out an attribute, the rest are attributes.
 * @param {string} tag
 * @param {Record<string, any>} [props] null and undefined are left out
 * @param {...(Node | string | null | undefined | false)} children strings become text nodes
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * One of the icons of templates/icons.html.
 * @param {string} name
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/**
 * A small button with an icon, and its name for screen readers.
 * @param {string} name
 * @param {string} picture
 * @param {(event: Event) => void} onclick
 * @returns {HTMLElement}
 */
export function tool(name, picture, onclick) {
  return h("button", { type: "button", class: "tool", "aria-label": name, title: name, onclick }, icon(picture));
}
