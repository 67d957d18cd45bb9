// The dialogs: each opens, waits, and returns the decision, or null.

import { $ } from "./dom.js";

/** @param {HTMLDialogElement} dialog @returns {Promise<boolean>} whether it was confirmed */
export function openDialog(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}

/**
 * @param {string} question
 * @param {string} explanation
 * @param {string} yes label of the confirming button
 * @returns {Promise<boolean>}
 */
export function confirm(question, explanation, yes) {
  $("confirm-title").textContent = question;
  $("confirm-text").textContent = explanation;
  $("confirm-ok").textContent = yes;
  return openDialog($("confirm-dialog"));
}

/** @param {string} title @returns {Promise<string | null>} */
export async function askTitle(title) {
  $("rename-text").value = title;
  const answer = openDialog($("rename-dialog"));
  $("rename-text").select();
  return (await answer) ? $("rename-text").value.trim() || null : null;
}

/** Close dialogs on cancel buttons and on clicks outside. */
export function startDialogs() {
  for (const dialog of document.querySelectorAll("dialog.dialog")) {
    dialog.addEventListener("click", (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (target === dialog || target.closest("[data-cancel]")) dialog.close("");
    });
  }
}
