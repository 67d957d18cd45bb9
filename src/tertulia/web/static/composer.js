// The box to write in: it grows with its text, keeps drafts and sends; while a reply comes, its button stops that.

import { $ } from "./dom.js";
import * as keep from "./keep.js";
import { onGiveBack } from "./making.js";
import { busy, complain, state } from "./state.js";
import { say, stop } from "./talk.js";

const text = $("text");
/** @type {string | null | undefined} */
let shownId;

/** CSS cannot yet do this everywhere (field-sizing). */
function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

/** @param {string} words */
function fill(words) {
  text.value = words;
  keep.keepDraft(state.conversation.id, words);
  grow();
  showComposer();
}

/** @param {string} [words] what to say instead of what stands in the box, as a suggestion does */
export function send(words) {
  const said = (words ?? text.value).trim();
  if (!said || busy() || !state.ready) return;
  if (words === undefined) fill("");
  say(said).catch(complain);
  if (window.matchMedia("(hover: hover)").matches || words !== undefined) text.focus();
}

/** Bring the box and its buttons up to date with the state. */
export function showComposer() {
  const { id } = state.conversation;
  if (id !== shownId) {
    // A conversation that has just got its id keeps what is being written.
    const begun = shownId === null && state.unsent !== null;
    if (begun) {
      keep.keepDraft(null, "");
      keep.keepDraft(id, text.value);
    } else text.value = keep.draft(id);
    shownId = id;
    grow();
  }
  const focused = document.activeElement;
  $("send").hidden = busy();
  $("stop").hidden = !busy();
  $("send").disabled = !text.value.trim() || !state.ready;
  if (focused === $("stop") && !busy()) text.focus();
}

/** Make the box work. */
export function startComposer() {
  $("composer").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    send();
  });
  text.addEventListener("input", () => {
    keep.keepDraft(state.conversation.id, text.value);
    grow();
    showComposer();
  });
  text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    // While an input method composes (Chinese, Japanese, ...) Enter belongs to it.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    send();
  });
  $("stop").addEventListener("click", () => stop().catch(complain));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !busy()) return;
    if (document.querySelector("dialog[open], :popover-open")) return; // Escape is theirs
    stop().catch(complain);
  });
  $("skip").addEventListener("click", (/** @type {Event} */ event) => {
    event.preventDefault(); // the address carries the conversation and must not change
    text.focus();
  });
  onGiveBack((words) => {
    if (text.value.trim() !== words) fill([words, text.value].filter(Boolean).join("\n"));
    text.focus();
  });
  window.addEventListener("resize", grow);
}
