// Making elements without ever parsing markup: whatever people or bots say goes through text nodes and stays text.

/**
 * The element of the page with this id; a missing one is a mistake of ours, so it fails at once.
 * @param {string} id
 * @returns {any}
 */
export function $(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element #${id}`);
  return found;
}

/**
 * A new element. `on...` adds a listener, true and false set or leave out an attribute, the rest are attributes.
 * @param {string} tag
 * @param {Record<string, any>} [props] null and undefined are left out
 * @param {...(Node | string | null | undefined | false)} children strings become text nodes
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, String(value));
  }
  for (const child of children) if (child) made.append(child);
  return made;
}

/**
 * One of the drawings of templates/icons.html.
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
 * A small button that is only a picture, with its name for those who do not see it.
 * @param {string} name
 * @param {string} picture
 * @param {(event: Event) => void} onclick
 * @returns {HTMLElement}
 */
export function tool(name, picture, onclick) {
  return h("button", { type: "button", class: "tool", "aria-label": name, title: name, onclick }, icon(picture));
}
