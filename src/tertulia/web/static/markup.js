// Builds the elements of a reply's Markdown, which the server has parsed. Only known tags and attributes are built, and
// texts stay text nodes: whatever a bot writes, no markup is parsed here.

import { copyTool } from "./copying.js";
import { h } from "./dom.js";

/** @typedef {string | [string, Record<string, any>, ...any[]]} Node a text, or a tag with attributes and children */

const TAGS = new Set("p strong em s code pre ul ol li blockquote table thead tbody tr th td hr a span".split(" "));
const ATTRIBUTES = new Set(["class", "href", "rel", "target", "start", "data-language"]);

/** @param {Node} node @returns {HTMLElement | string} */
function build(node) {
  if (typeof node === "string") return node;
  const [tag, attributes, ...children] = node;
  const allowed = Object.fromEntries(Object.entries(attributes).filter(([name]) => ATTRIBUTES.has(name)));
  const element = h(TAGS.has(tag) ? tag : "span", allowed, ...children.map(build));
  if (tag === "pre") return codeBlock(element, attributes["data-language"] ?? "");
  // What may be wider than the bubble scrolls by itself, and by keyboard.
  if (tag === "table") return h("div", { class: "table", role: "group", tabindex: 0, "aria-label": "Table" }, element);
  return element;
}

/** @param {HTMLElement} pre @param {string} language */
function codeBlock(pre, language) {
  const scroller = h("div", { class: "code-text", role: "group", tabindex: 0, "aria-label": "Code" }, pre);
  const bar = h("div", { class: "code-bar" }, h("span", {}, language), copyTool(pre.textContent ?? "", "Copy the code"));
  return h("div", { class: "code" }, bar, scroller);
}

/** @param {Node[]} nodes @returns {(HTMLElement | string)[]} */
export const buildMarkup = (nodes) => nodes.map(build);
