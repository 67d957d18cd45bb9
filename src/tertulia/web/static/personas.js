// The persona dialog: one list of radio buttons (no persona, one's own words, suggestions), with a search above it.

import { $, h } from "./dom.js";
import { openDialog } from "./dialogs.js";
import { state } from "./state.js";

/** With more personas than this, the dialog offers a search. */
const SEARCH_ABOVE = 8;

/**
 * @param {string[] | null} persona
 * @returns {import("./api.js").Persona | undefined} the suggested persona with the same sentences
 */
export function listed(persona) {
  const wanted = JSON.stringify(persona);
  return state.personas.find(({ sentences }) => JSON.stringify(sentences) === wanted);
}

/** @param {number} index */
const nameOf = (index) => state.personas[index].name || `Persona ${index + 1}`;

/** @param {string} value @param {string} name @param {string} text */
function card(value, name, text) {
  const radio = h("input", { type: "radio", name: "persona", value });
  const words = h("span", { class: "card-text", dir: "auto" }, text);
  return h("label", { class: "card" }, radio, h("span", { class: "card-name", dir: "auto" }, name), words);
}

/** @returns {HTMLInputElement[]} */
const radios = () => [...$("persona-dialog").querySelectorAll("input[name=persona]")];
const chosen = () => radios().find((radio) => radio.checked)?.value ?? "none";
/** @returns {HTMLInputElement[]} of the suggestions that match the search */
const results = () => [...$("persona-cards").querySelectorAll(".card:not([hidden]) input")];

/** Show the text box only for a persona in one's own words, and say on the button what it will do. */
function showChoice() {
  const value = chosen();
  $("persona-own").hidden = value !== "own";
  const what = value === "none" ? "no persona" : value === "own" ? "my own words" : nameOf(Number(value));
  $("persona-ok").textContent = `Use ${what}`;
}

/** Show only the personas that contain all the words. */
function search() {
  const wanted = $("persona-words").value.toLowerCase().split(/\s+/);
  for (const element of $("persona-cards").children) {
    const text = element.textContent.toLowerCase();
    element.hidden = !wanted.every((/** @type {string} */ word) => text.includes(word));
  }
  $("persona-nothing").textContent = results().length || !state.personas.length ? "" : "No persona found.";
}

/** Go from the search to its first result. */
function toResults() {
  const first = results()[0];
  if (!first) return;
  first.checked = true;
  first.focus();
  showChoice();
}

/**
 * @param {string[] | null} persona the current one
 * @returns {Promise<{persona: string[] | null} | null>} null when cancelled
 */
export async function askPersona(persona) {
  const cards = state.personas.map(({ sentences }, index) => card(String(index), nameOf(index), sentences.join(" ")));
  $("persona-cards").replaceChildren(...cards);
  $("persona-search").hidden = cards.length <= SEARCH_ABOVE;
  $("persona-words").value = "";
  search();
  const suggested = listed(persona);
  const value = suggested ? String(state.personas.indexOf(suggested)) : persona ? "own" : "none";
  for (const radio of radios()) radio.checked = radio.value === value;
  $("persona-text").value = persona && !suggested ? persona.join("\n") : "";
  showChoice();
  const answer = openDialog($("persona-dialog"));
  radios().find((radio) => radio.checked)?.focus();
  if (!(await answer)) return null;
  const choice = chosen();
  if (choice === "none") return { persona: null };
  if (choice !== "own") return { persona: state.personas[Number(choice)].sentences };
  const lines = $("persona-text").value.split("\n").map((/** @type {string} */ line) => line.trim());
  return { persona: lines.filter(Boolean) };
}

/** Connect the dialog. */
export function startPersonas() {
  $("persona-dialog").addEventListener("change", showChoice);
  // A click shows that one wants to write; arrow keys only pass by, and must not lose the focus to the text box.
  $("persona-own-card").addEventListener("click", (/** @type {MouseEvent} */ event) => {
    if (event.detail > 0) window.setTimeout(() => $("persona-text").focus());
  });
  $("persona-words").addEventListener("input", search);
  $("persona-words").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault(); // searching must not submit the dialog
    toResults();
  });
}
