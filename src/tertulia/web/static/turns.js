// The nodes of the log: what people and bots said, with what can be done about it below.
// What stands below a message is out of the live region's sight: only what was said is announced.

import { $, h, icon, tool } from "./dom.js";
import { botName, complain, state } from "./state.js";
import { regenerate, undo } from "./talk.js";

/** @typedef {import("./api.js").Turn} Turn */

const TONES = 6;
const COPIED_MS = 1500;

/** @param {string | null} bot @returns {string} a colour that stays the bot's own */
function tone(bot) {
  const place = state.bots.findIndex((known) => known.id === bot);
  return `tone-${(place < 0 ? TONES - 1 : place) % TONES}`;
}

/** The clipboard where plain http has none. @param {string} text */
function copyTheOldWay(text) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const field = document.createElement("textarea");
  field.className = "sr";
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  focused?.focus();
}

/** @param {string} text @param {HTMLElement} button */
async function copy(text, button) {
  await navigator.clipboard.writeText(text).catch(() => copyTheOldWay(text));
  $("said").textContent = "Copied";
  button.replaceChildren(icon("check"));
  window.setTimeout(() => {
    button.replaceChildren(icon("copy"));
    $("said").textContent = "";
  }, COPIED_MS);
}

/** @param {string} text */
function copyTool(text) {
  const button = tool("Copy", "copy", () => copy(text, button));
  return button;
}

/** @param {...(Node | string | false | null)} children */
const below = (...children) => h("div", { class: "below", "aria-live": "off" }, ...children);

/** @param {string} words */
const fact = (words) => h("span", { class: "fact" }, words);

/** @param {Turn} turn @returns {HTMLElement} */
function bubble(turn) {
  const box = h("div", { class: turn.status === "failed" ? "bubble failed" : "bubble", dir: "auto" }, turn.text);
  let remark = "";
  if (turn.status === "failed") remark = turn.error || "This reply failed.";
  else if (turn.status === "stopped" && !turn.text) remark = "Stopped before a word was said.";
  if (remark) box.append(h("span", { class: "aside" }, turn.text && "\n", remark));
  return box;
}

/** @param {Turn} turn @returns {HTMLElement} */
export function userTurn(turn) {
  const heading = h("span", { class: "sr" }, "You said:");
  return h("article", { class: "turn user" }, heading, bubble(turn), below(copyTool(turn.text)));
}

/** A message on its way. @param {string} text @returns {HTMLElement} */
export function unsentTurn(text) {
  const box = h("div", { class: "bubble", dir: "auto" }, text);
  const note = below(state.lost ? "not sent yet" : "sending");
  return h("article", { class: "turn user unsent", "aria-live": "off" }, box, note);
}

/** @param {Turn} turn @returns {HTMLElement} */
export function botTurn(turn) {
  const name = botName(turn.bot);
  const seconds = turn.seconds === null ? null : `answered in ${turn.seconds.toFixed(1)} s`;
  const facts = below(
    h("span", { class: `who ${tone(turn.bot)}`, title: seconds }, name),
    turn.attempts > 1 && fact(`attempt ${turn.attempts}`),
    turn.status === "stopped" && fact("stopped"),
    turn.text !== "" && copyTool(turn.text),
  );
  return h("article", { class: "turn bot" }, h("span", { class: "sr" }, `${name} said:`), bubble(turn), facts);
}

/**
 * Only the last reply can be made again or taken back. The node stays as it is: a new one would be announced again.
 * @param {HTMLElement} node of a bot's turn
 * @param {boolean} last
 */
export function markLast(node, last) {
  if (node.classList.toggle("last", last) === Boolean(node.querySelector(".ending"))) return;
  if (!last) node.querySelector(".ending")?.remove();
  else {
    const again = tool("Regenerate the reply", "again", () => regenerate().catch(complain));
    const back = tool("Undo the last message", "undo", () => undo().catch(complain));
    node.querySelector(".below")?.append(h("span", { class: "ending" }, again, back));
  }
}

/**
 * A reply in the making.
 * @param {Turn} turn
 * @returns {{node: HTMLElement, text: Text}} `text` is what is written on
 */
export function livingTurn(turn) {
  const name = botName(turn.bot);
  const dots = h("span", { class: "typing" }, h("i"), h("i"), h("i"), h("span", { class: "sr" }, `${name} is writing`));
  const text = document.createTextNode(turn.text);
  const box = h("div", { class: "bubble", dir: "auto" }, turn.text ? text : dots);
  const facts = below(
    h("span", { class: `who ${tone(turn.bot)}` }, name),
    turn.attempts > 1 && fact(`attempt ${turn.attempts}`),
  );
  const node = h("article", { class: "turn bot living", "aria-live": "off", "aria-busy": "true" }, box, facts);
  return { node, text };
}

/** @param {string} bot @returns {HTMLElement} */
export const divider = (bot) => h("p", { class: "switch" }, `now talking to ${botName(bot)}`);
