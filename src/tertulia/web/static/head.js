// The head of the page: title, bot, persona, and the menu of the conversation.

import * as api from "./api.js";
import * as desk from "./desk.js";
import * as dialogs from "./dialogs.js";
import { $, h, icon } from "./dom.js";
import { botName, complain, state } from "./state.js";

const FORMATS = /** @type {const} */ (["json", "txt", "md"]);
let offered = "";

/** The bots to choose from, and the conversation's own even when it is no longer served. */
function showBots() {
  const { bots, conversation } = state;
  const ids = bots.map((bot) => bot.id);
  if (conversation.bot && !ids.includes(conversation.bot)) ids.push(conversation.bot);
  if (ids.join("\n") !== offered) {
    offered = ids.join("\n");
    $("bot").replaceChildren(...ids.map((id) => h("option", { value: id }, botName(id))));
  }
  $("bot").value = conversation.bot;
  $("bot").title = bots.find((bot) => bot.id === conversation.bot)?.summary ?? "";
}

/** @param {string[] | null} persona */
function personaName(persona) {
  if (!persona) return "none";
  return dialogs.listed(persona)?.name || persona[0] || "your own";
}

/** Bring the head up to date with the state. */
export function showHead() {
  const { id, title, persona } = state.conversation;
  const name = title || "New conversation";
  $("title").textContent = name;
  document.title = `${name} · Tertulia`;
  showBots();
  $("persona-value").textContent = personaName(persona);
  $("persona").title = persona ? persona.join(" ") : "The bot speaks as itself";
  $("more").disabled = !id;
  for (const format of FORMATS) $(`export-${format}`).href = id ? api.exportLink(id, format) : "#";
}

/** The button says what it would do. */
export function showTheme() {
  const next = window.tertuliaTheme.current() === "dark" ? "light" : "dark";
  $("theme").replaceChildren(icon(next === "dark" ? "moon" : "sun"), `Switch to ${next}`);
}

/** Do something from the menu, and close it. @param {string} id @param {() => Promise<void>} action */
function onItem(id, action) {
  $(id).addEventListener("click", () => {
    $("menu").hidePopover();
    action().catch(complain);
  });
}

async function rename() {
  const title = await dialogs.askTitle(state.conversation.title);
  if (title) await desk.rename(title);
}

/** @param {() => void} leave go to a new conversation */
async function remove(leave) {
  const explanation = "It is erased from the server for good. Export it first if you want to keep it.";
  if (!(await dialogs.confirm("Delete this conversation?", explanation, "Delete"))) return;
  await desk.remove();
  leave();
}

/** @param {() => void} leave */
async function erase(leave) {
  const explanation = "All your conversations are erased from the server for good, and your drafts from this browser.";
  if (!(await dialogs.confirm("Erase all your data?", explanation, "Erase everything"))) return;
  await desk.eraseEverything();
  leave();
}

async function persona() {
  const choice = await dialogs.askPersona(state.conversation.persona);
  if (choice) await desk.choosePersona(choice.persona);
}

/** Make the head and the foot of the side work. @param {() => void} leave go to a new conversation */
export function startHead(leave) {
  $("bot").addEventListener("change", () => desk.chooseBot($("bot").value).catch(complain));
  $("persona").addEventListener("click", () => persona().catch(complain));
  onItem("rename", rename);
  onItem("delete", () => remove(leave));
  for (const format of FORMATS) $(`export-${format}`).addEventListener("click", () => $("menu").hidePopover());
  $("erase").addEventListener("click", () => erase(leave).catch(complain));
  $("theme").addEventListener("click", () => {
    window.tertuliaTheme.toggle();
    showTheme();
  });
  window.tertuliaTheme.watch(showTheme);
  showTheme();
}
