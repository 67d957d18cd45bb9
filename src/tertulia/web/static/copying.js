// Copying to the clipboard, with a button that says when it is done.

import { $, icon, tool } from "./dom.js";

const COPIED_MS = 1500;

/** Copying over plain http, where there is no clipboard API. @param {string} text */
function copyByCommand(text) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const field = document.createElement("textarea");
  field.className = "sr";
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  focused?.focus();
}

/** @param {string} text @param {HTMLElement} button */
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyByCommand(text);
  }
  $("status").textContent = "Copied";
  button.replaceChildren(icon("check"));
  window.setTimeout(() => {
    button.replaceChildren(icon("copy"));
    $("status").textContent = "";
  }, COPIED_MS);
}

/** @param {string} text @param {string} [name] */
export function copyTool(text, name = "Copy") {
  const button = tool(name, "copy", () => copy(text, button));
  return button;
}
