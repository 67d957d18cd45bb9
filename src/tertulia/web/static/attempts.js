// Browsing the attempts at a reply and the versions of a message: ‹ 2/3 ›. Looking at another one changes nothing; the
// bot goes on reading the current one, until "Use this reply" makes another attempt at the last reply the current one.

import * as api from "./api.js";
import { $, h, tool } from "./dom.js";
import { change, changeConversation, showError, state } from "./state.js";
import { tellTabs } from "./tabs.js";

/** @typedef {import("./api.js").Turn} Turn */

/** What is shown instead of a current turn, by the id of that turn. @type {Map<string, {all: Turn[], index: number}>} */
const views = new Map();

/** @param {Turn} turn a current one @returns {Turn} the attempt at it to show */
export function viewed(turn) {
  const view = views.get(turn.id);
  return view ? view.all[view.index] : turn;
}

/** @param {Turn} turn @param {number} step */
async function browse(turn, step) {
  const { id } = state.conversation;
  const all = views.get(turn.id)?.all ?? (await api.attempts(id ?? "", turn.id));
  const index = Math.max(0, Math.min(all.length - 1, viewed(turn).attempt - 1 + step));
  if (all[index].id === turn.id) views.delete(turn.id);
  else views.set(turn.id, { all, index });
  change({});
  // The row was built anew: the same button in it gets the focus back, or its neighbour at the end of the list.
  const [back, forth] = $("log").querySelectorAll(`[data-turn="${turn.id}"] .attempts .tool`);
  const [same, other] = step < 0 ? [back, forth] : [forth, back];
  (same?.disabled ? other : same)?.focus();
}

/** @param {Turn} turn the current one */
async function use(turn) {
  const { id, turns } = state.conversation;
  const chosen = await api.choose(id ?? "", viewed(turn).id);
  views.delete(turn.id);
  changeConversation({ turns: turns.map((other) => (other.id === turn.id ? chosen : other)) });
  tellTabs("changed", id);
  $("text").focus();
}

/**
 * The browser of a turn's attempts; nothing if there is only one.
 * @param {Turn} turn the current one
 * @returns {HTMLElement | null}
 */
export function attemptBrowser(turn) {
  if (turn.attempts < 2) return null;
  const shown = viewed(turn);
  const what = turn.speaker === "bot" ? "attempt" : "version";
  const [back, forth] = [
    tool(`Previous ${what}`, "previous", () => browse(turn, -1).catch(showError)),
    tool(`Next ${what}`, "next", () => browse(turn, +1).catch(showError)),
  ];
  back.toggleAttribute("disabled", shown.attempt <= 1);
  forth.toggleAttribute("disabled", shown.attempt >= turn.attempts);
  const count = h("span", { class: "count" }, h("span", { class: "sr" }, `${what} `), `${shown.attempt}/${turn.attempts}`);
  return h("span", { class: "attempts" }, back, count, forth);
}

/** What to say about an attempt that is shown but not current. @param {Turn} turn the current one @returns {HTMLElement | null} */
export function viewNote(turn) {
  if (viewed(turn) === turn) return null;
  if (turn.speaker === "user") return h("span", { class: "fact" }, "earlier version");
  if (state.conversation.turns.at(-1)?.id !== turn.id) return h("span", { class: "fact" }, "not used");
  const onclick = () => use(turn).catch(showError);
  return h("button", { type: "button", class: "button small use", onclick }, "Use this reply");
}
