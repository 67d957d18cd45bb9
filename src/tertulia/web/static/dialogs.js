// The dialogs: each opens, waits, and gives what was decided, or null.

import { $, h } from "./dom.js";
import { state } from "./state.js";

/** So many personas are seen at a glance; among more one has to look for words. */
const SURVEYABLE = 8;

/** @param {HTMLDialogElement} dialog @returns {Promise<boolean>} whether it was confirmed */
function decided(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}

/**
 * @param {string} question
 * @param {string} explanation
 * @param {string} yes the name of the button that does it
 * @returns {Promise<boolean>}
 */
export function confirm(question, explanation, yes) {
  $("confirm-title").textContent = question;
  $("confirm-text").textContent = explanation;
  $("confirm-ok").textContent = yes;
  return decided($("confirm-dialog"));
}

/** @param {string} title @returns {Promise<string | null>} */
export async function askTitle(title) {
  $("rename-text").value = title;
  const answer = decided($("rename-dialog"));
  $("rename-text").select();
  return (await answer) ? $("rename-text").value.trim() || null : null;
}

/**
 * @param {string[] | null} persona
 * @returns {import("./api.js").Persona | undefined} the listed one with the same sentences
 */
export function listed(persona) {
  const wanted = JSON.stringify(persona);
  return state.personas.find((known) => JSON.stringify(known.sentences) === wanted);
}

/** @param {string} value @param {string} name @param {string} text */
function card(value, name, text) {
  const radio = h("input", { type: "radio", name: "persona", value });
  const words = h("span", { class: "card-text", dir: "auto" }, text);
  return h("label", { class: "card" }, radio, h("span", { class: "card-name", dir: "auto" }, name), words);
}

/** @returns {HTMLInputElement[]} */
const radios = () => [...$("persona-dialog").querySelectorAll("input[name=persona]")];

/** Writing one's own is offered only where it is wanted. */
function showOwn() {
  $("persona-own").hidden = radios().find((radio) => radio.checked)?.value !== "own";
}

/** Leave only the personas in sight that have all the words looked for. */
function search() {
  const wanted = $("persona-words").value.toLowerCase().split(/\s+/);
  for (const found of $("persona-cards").children) {
    const text = found.textContent.toLowerCase();
    found.hidden = !wanted.every((/** @type {string} */ word) => text.includes(word));
  }
}

/**
 * @param {string[] | null} persona the one in use
 * @returns {Promise<{persona: string[] | null} | null>} null when nothing was decided
 */
export async function askPersona(persona) {
  const cards = state.personas.map(({ name, sentences }, place) =>
    card(String(place), name || `Persona ${place + 1}`, sentences.join(" ")),
  );
  $("persona-cards").replaceChildren(...cards);
  $("persona-search").hidden = cards.length <= SURVEYABLE;
  $("persona-words").value = "";
  const known = listed(persona);
  const chosen = known ? String(state.personas.indexOf(known)) : persona ? "own" : "none";
  for (const radio of radios()) radio.checked = radio.value === chosen;
  $("persona-text").value = persona && !known ? persona.join("\n") : "";
  showOwn();
  const answer = decided($("persona-dialog"));
  radios().find((radio) => radio.checked)?.focus();
  if (!(await answer)) return null;
  const value = radios().find((radio) => radio.checked)?.value ?? "none";
  if (value === "none") return { persona: null };
  if (value !== "own") return { persona: state.personas[Number(value)].sentences };
  const lines = $("persona-text").value.split("\n").map((/** @type {string} */ line) => line.trim());
  return { persona: lines.filter(Boolean) };
}

/** Make cancel buttons cancel, and a click beside a dialog as well. */
export function startDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (target === dialog || target.closest("[data-cancel]")) dialog.close("");
    });
  }
  $("persona-dialog").addEventListener("change", (/** @type {Event} */ { target }) => {
    showOwn();
    if (/** @type {HTMLInputElement} */ (target).value === "own") $("persona-text").focus();
  });
  $("persona-words").addEventListener("input", search);
  $("persona-words").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") event.preventDefault(); // looking is not yet choosing
  });
}
