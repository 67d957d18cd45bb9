// The header of the page: title, bot, persona, evidence, and the menu of the conversation.

import * as api from "./api.js";
import * as manage from "./manage.js";
import * as dialogs from "./dialogs.js";
import { $, icon } from "./dom.js";
import { askEvidence, passageCount } from "./evidence.js";
import { askPersona, listed } from "./personas.js";
import { showError, state } from "./state.js";

const FORMATS = /** @type {const} */ (["json", "txt", "md"]);

/** @param {string[] | null} persona */
function personaName(persona) {
  if (!persona) return "none";
  return listed(persona)?.name || persona[0] || "your own";
}

/** Update the header from the state. */
export function showHeader() {
  const { id, title, persona, evidence } = state.conversation;
  const name = title || "New conversation";
  $("title").textContent = name;
  document.title = `${name} · Tertulia`;
  $("persona-value").textContent = personaName(persona);
  $("persona").setAttribute("aria-label", `Persona: ${personaName(persona)}`);
  $("persona").title = persona ? persona.join(" ") : "The bot speaks as itself";
  $("persona").classList.toggle("set", persona !== null);
  const passages = evidence ? passageCount(evidence.length) : "none";
  $("evidence-value").textContent = passages;
  $("evidence").setAttribute("aria-label", `Evidence: ${passages}`);
  $("evidence").title = evidence ? evidence.join(" ").slice(0, 300) : "Give the bot a text that its replies should rest on";
  $("evidence").classList.toggle("set", evidence !== null);
  $("more").disabled = !id;
  $("title-edit").hidden = !id;
  for (const format of FORMATS) $(`export-${format}`).href = id ? api.exportLink(id, format) : "#";
}

/** The button names the theme it switches to. */
export function showTheme() {
  const next = window.tertuliaTheme.current() === "dark" ? "light" : "dark";
  $("theme").replaceChildren(icon(next === "dark" ? "moon" : "sun"), `Switch to ${next}`);
}

/** Run an action from the menu, and close it. @param {string} id @param {() => Promise<void>} action */
function onItem(id, action) {
  $(id).addEventListener("click", () => {
    $("menu").hidePopover();
    action().catch(showError);
  });
}

async function rename() {
  const title = await dialogs.askTitle(state.conversation.title);
  if (title) await manage.rename(title);
}

/** @param {() => void} leave go to a new conversation */
async function remove(leave) {
  const explanation = "It will be permanently deleted from the server. Export it first if you want to keep a copy.";
  if (!(await dialogs.confirm("Delete this conversation?", explanation, "Delete"))) return;
  await manage.remove();
  leave();
}

/** @param {() => void} leave */
async function erase(leave) {
  const explanation = "This permanently deletes your conversations from the server and your drafts from this browser.";
  if (!(await dialogs.confirm("Erase all your data?", explanation, "Erase everything"))) return;
  await manage.eraseEverything();
  leave();
}

async function persona() {
  const choice = await askPersona(state.conversation.persona);
  if (choice) await manage.choosePersona(choice.persona);
}

async function evidence() {
  const choice = await askEvidence(state.conversation.evidence);
  if (choice) await manage.chooseEvidence(choice.evidence);
}

/** Connect the header and the foot of the sidebar. @param {() => void} leave go to a new conversation */
export function startHeader(leave) {
  $("persona").addEventListener("click", () => persona().catch(showError));
  $("evidence").addEventListener("click", () => evidence().catch(showError));
  $("title-edit").addEventListener("click", () => rename().catch(showError));
  onItem("rename", rename);
  onItem("delete", () => remove(leave));
  for (const format of FORMATS) $(`export-${format}`).addEventListener("click", () => $("menu").hidePopover());
  $("erase").addEventListener("click", () => erase(leave).catch(showError));
  $("theme").addEventListener("click", () => {
    window.tertuliaTheme.toggle();
    showTheme();
  });
  window.tertuliaTheme.watch(showTheme);
  showTheme();
}
