// The bot picker: a list with a search. The focus stays in the search box while the arrow keys move through the list (the
// combobox pattern), so that one can type and choose without leaving it.

import * as manage from "./manage.js";
import { $, h } from "./dom.js";
import { botName, showError, state } from "./state.js";
import { tone } from "./tones.js";

const picker = $("picker");
const words = $("picker-words");
const list = $("picker-list");

/** The bots that match the search. @type {import("./api.js").Bot[]} */
let matching = [];
let active = 0;

/** @returns {import("./api.js").Bot[]} all bots, with the conversation's own even if it is no longer served */
function offered() {
  const { bots, conversation } = state;
  if (!conversation.bot || bots.some(({ id }) => id === conversation.bot)) return bots;
  return [...bots, { id: conversation.bot, name: conversation.bot, summary: "No longer served.", streams: false }];
}

/** @param {import("./api.js").Bot} bot @param {number} index */
function option(bot, index) {
  return h(
    "li",
    {
      id: `picker-${index}`,
      role: "option",
      class: `option ${tone(bot.id)}`,
      "aria-selected": String(bot.id === state.conversation.bot),
      onclick: () => choose(index),
      onpointermove: () => index !== active && activate(index),
    },
    h("span", { class: "dot" }),
    h("span", { class: "option-name", dir: "auto" }, bot.name),
    bot.summary && h("span", { class: "option-text", dir: "auto" }, bot.summary),
  );
}

/** @param {number} index */
function activate(index) {
  active = Math.max(0, Math.min(matching.length - 1, index));
  for (const [at, node] of [...list.children].entries()) node.classList.toggle("active", at === active);
  if (matching.length) words.setAttribute("aria-activedescendant", `picker-${active}`);
  else words.removeAttribute("aria-activedescendant");
  list.children[active]?.scrollIntoView({ block: "nearest" });
}

function search() {
  const wanted = words.value.toLowerCase().split(/\s+/);
  matching = offered().filter(({ id, name, summary }) => {
    const text = `${id} ${name} ${summary}`.toLowerCase();
    return wanted.every((/** @type {string} */ word) => text.includes(word));
  });
  list.replaceChildren(...matching.map(option));
  list.hidden = matching.length === 0;
  words.setAttribute("aria-expanded", String(matching.length > 0));
  $("picker-nothing").textContent = matching.length ? "" : "No bot found.";
  activate(words.value ? 0 : matching.findIndex(({ id }) => id === state.conversation.bot));
}

/** @param {number} index */
function choose(index) {
  const bot = matching[index];
  if (!bot) return;
  picker.hidePopover();
  if (bot.id !== state.conversation.bot) manage.chooseBot(bot.id).catch(showError);
}

/** Update the button from the state. */
export function showPicker() {
  const { bot } = state.conversation;
  const button = $("bot");
  if (button.dataset.bot === bot && $("bot-value").textContent === botName(bot)) return;
  button.dataset.bot = bot;
  button.title = state.bots.find(({ id }) => id === bot)?.summary ?? "";
  $("bot-value").textContent = bot ? botName(bot) : "";
  $("bot-dot").className = `dot ${tone(bot)}`;
}

/** Connect the picker. */
export function startPicker() {
  // Before it opens, not after: "toggle" comes a moment late, and what is typed in that moment would be lost. The browser
  // moves the focus to whatever has autofocus as part of opening.
  picker.addEventListener("beforetoggle", (/** @type {ToggleEvent} */ event) => {
    if (event.newState !== "open") return;
    words.value = "";
    search();
    // On a phone the keyboard would cover the list; there the search box waits to be tapped.
    const keyboard = window.matchMedia("(hover: hover)").matches;
    words.toggleAttribute("autofocus", keyboard);
    picker.toggleAttribute("autofocus", !keyboard);
  });
  picker.addEventListener("toggle", (/** @type {ToggleEvent} */ event) => {
    if (event.newState === "open") activate(active); // scrolling to the chosen bot works only once the list is visible
  });
  words.addEventListener("input", search);
  picker.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 5, PageUp: -5 }[event.key];
    if (step) activate(active + step);
    else if (event.key === "Enter" && !event.isComposing) choose(active);
    else if (event.key === "Escape") picker.hidePopover(); // a search field would only be emptied
    else return;
    event.preventDefault();
  });
}
