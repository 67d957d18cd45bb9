// What a visitor sets for themselves in this browser: whether times are shown, and whether Markdown is formatted.

import { $, icon } from "./dom.js";
import { change, state } from "./state.js";
import * as storage from "./storage.js";

/** @param {string} id @param {string} picture @param {string} label */
function label(id, picture, label) {
  if ($(id).textContent !== label) $(id).replaceChildren(icon(picture), label);
}

/** Each button says what it does next. */
export function showPreferences() {
  label("times", "clock", state.times ? "Hide times" : "Show times");
  label("formatting", "format", state.markdown ? "Show replies as plain text" : "Format Markdown in replies");
}

/** Read what was saved, and connect the buttons. */
export function startPreferences() {
  const offered = $("room").dataset.markdown === "on";
  change({ times: storage.isOn("times"), markdown: offered && !storage.isOn("plain") });
  $("times").addEventListener("click", () => {
    change({ times: !state.times });
    storage.setOn("times", state.times);
  });
  $("formatting").addEventListener("click", () => {
    change({ markdown: !state.markdown });
    storage.setOn("plain", !state.markdown);
  });
}
