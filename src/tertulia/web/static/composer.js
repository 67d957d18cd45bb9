// The composer: grows with its text, saves drafts and sends; while a reply is generated, its button stops it.

import { $ } from "./dom.js";
import * as storage from "./storage.js";
import { onRestoreText } from "./replies.js";
import { busy, showError, state } from "./state.js";
import { say, stop } from "./messages.js";

const text = $("text");
/** @type {string | null | undefined} */
let shownId;

/** Not every browser supports field-sizing in CSS yet. */
function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

/** @param {string} words */
function fill(words) {
  text.value = words;
  storage.saveDraft(state.conversation.id, words);
  grow();
  showComposer();
}

/** @param {string} [words] a suggestion to send instead of the text in the box */
export function send(words) {
  const message = (words ?? text.value).trim();
  if (!message || busy() || !state.ready) return;
  if (words === undefined) fill("");
  say(message).catch(showError);
  if (window.matchMedia("(hover: hover)").matches || words !== undefined) text.focus();
}

/** Update the box and its buttons from the state. */
export function showComposer() {
  const { id } = state.conversation;
  if (id !== shownId) {
    // A conversation that was just created keeps its draft.
    const justCreated = shownId === null && state.unsent !== null;
    if (justCreated) {
      storage.saveDraft(null, "");
      storage.saveDraft(id, text.value);
    } else text.value = storage.draft(id);
    shownId = id;
    grow();
  }
  const focused = document.activeElement;
  $("send").hidden = busy();
  $("stop").hidden = !busy();
  $("send").disabled = !text.value.trim() || !state.ready;
  if (focused === $("stop") && !busy()) text.focus();
}

/** Connect the box. */
export function startComposer() {
  $("composer").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    send();
  });
  text.addEventListener("input", () => {
    storage.saveDraft(state.conversation.id, text.value);
    grow();
    showComposer();
  });
  text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    // While an input method composes (Chinese, Japanese, ...) Enter confirms its choice.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    send();
  });
  $("stop").addEventListener("click", () => stop().catch(showError));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !busy()) return;
    if (document.querySelector("dialog[open], :popover-open")) return; // Escape closes these
    stop().catch(showError);
  });
  $("skip").addEventListener("click", (/** @type {Event} */ event) => {
    event.preventDefault(); // the address names the conversation and must not change
    text.focus();
  });
  onRestoreText((words) => {
    if (text.value.trim() !== words) fill([words, text.value].filter(Boolean).join("\n"));
    text.focus();
  });
  window.addEventListener("resize", grow);
}
