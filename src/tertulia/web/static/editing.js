// Editing a message in its place. Sending continues from there; the earlier version and what followed it are kept.

import { h } from "./dom.js";
import { edit } from "./messages.js";
import { busy, change, showError, state } from "./state.js";

/** @param {import("./api.js").Turn} turn */
export function startEditing(turn) {
  if (!busy()) change({ editing: { id: turn.id, text: turn.text } });
}

function stopEditing() {
  const id = state.editing?.id;
  change({ editing: null });
  /** @type {HTMLElement | null} */ (document.querySelector(`[data-turn="${id}"] .edit`))?.focus();
}

/** The form in place of a message's bubble. @param {import("./api.js").Turn} turn @param {string} text @returns {HTMLElement} */
export function editForm(turn, text) {
  const box = /** @type {HTMLTextAreaElement} */ (
    h("textarea", { dir: "auto", rows: Math.min(8, text.split("\n").length + 1), "aria-label": "Edit your message" })
  );
  box.value = text;
  const submit = () => {
    const words = box.value.trim();
    if (!words || busy()) return;
    if (words === turn.text) stopEditing();
    else edit(turn, words).catch(showError);
  };
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      stopEditing();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
      event.preventDefault();
      submit();
    }
  });
  const buttons = h(
    "div",
    { class: "buttons" },
    h("p", { class: "hint" }, "What followed is kept as an earlier version."),
    h("button", { type: "button", class: "button", onclick: stopEditing }, "Cancel"),
    h("button", { type: "submit", class: "button strong" }, "Send"),
  );
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    submit();
  };
  queueMicrotask(() => box.focus()); // once the form is in the page, but before the next key
  return h("form", { class: "edit-form", onsubmit }, box, buttons);
}
