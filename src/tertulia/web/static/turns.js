// The nodes of the log: messages and replies, with their buttons and details below.
// What is below a message is not live: screen readers announce only the message itself.

import { attemptBrowser, viewed, viewNote } from "./attempts.js";
import { copyTool } from "./copying.js";
import { brief, exact } from "./dates.js";
import { h, icon, tool } from "./dom.js";
import { editForm, startEditing } from "./editing.js";
import { evidencePanel } from "./grounding.js";
import { buildMarkup } from "./markup.js";
import { regenerate, undo } from "./messages.js";
import { botName, showError, state } from "./state.js";
import { tone } from "./tones.js";
import { whyTool } from "./why.js";

/** @typedef {import("./api.js").Turn} Turn */

/** @param {...(Node | string | false | null)} children */
const below = (...children) => h("div", { class: "below", "aria-live": "off" }, ...children);

/** @param {string} words */
const fact = (words) => h("span", { class: "fact" }, words);

/** @param {Turn} turn */
const time = (turn) =>
  state.times && turn.created !== "" && h("time", { class: "fact", datetime: turn.created, title: exact(turn.created) }, brief(turn.created));

/** @param {Turn} turn @returns {HTMLElement} */
function bubble(turn) {
  const rich = state.markdown && turn.markup !== null;
  const kind = `bubble${turn.status === "failed" ? " failed" : ""}${rich ? " rich" : ""}`;
  const title = turn.created && exact(turn.created);
  const content = rich ? buildMarkup(turn.markup ?? []) : [turn.text];
  const box = h("div", { class: kind, dir: "auto", title }, ...content);
  let remark = "";
  if (turn.status === "failed") remark = turn.error || "This reply failed.";
  else if (turn.status === "stopped" && !turn.text) remark = "Stopped before the first word.";
  if (remark) box.append(h("p", { class: "aside" }, remark, turn.hint && ` ${turn.hint}`));
  return box;
}

/** @param {Turn} turn @returns {HTMLElement} */
export function userTurn(turn) {
  const editing = state.editing?.id === turn.id ? state.editing : null;
  if (editing) {
    const form = editForm(turn, editing.text);
    return h("article", { class: "turn user editing", "data-turn": turn.id, "aria-live": "off" }, form);
  }
  const shown = viewed(turn);
  const heading = h("span", { class: "sr" }, "You said:");
  const pencil = tool("Edit and send again", "pencil", () => startEditing(turn));
  pencil.classList.add("edit");
  const tools = below(time(shown), viewNote(turn), attemptBrowser(turn), shown === turn && pencil, copyTool(shown.text));
  const kind = shown === turn ? "turn user" : "turn user unused";
  return h("article", { class: kind, "data-turn": turn.id }, heading, bubble(shown), tools);
}

/** A message that is being sent. @param {string} text @returns {HTMLElement} */
export function unsentTurn(text) {
  const box = h("div", { class: "bubble", dir: "auto" }, text);
  const note = below(state.lost ? "not sent yet" : "sending");
  return h("article", { class: "turn user unsent", "aria-live": "off" }, box, note);
}

/** @param {Turn} turn @returns {HTMLElement} */
export function botTurn(turn) {
  const shown = viewed(turn);
  const name = botName(shown.bot);
  const seconds = shown.seconds === null ? null : `answered in ${shown.seconds.toFixed(1)} s`;
  const facts = below(
    h("span", { class: `who ${tone(shown.bot)}`, title: seconds }, name),
    time(shown),
    shown.status === "stopped" && fact("stopped"),
    attemptBrowser(turn),
    viewNote(turn),
    shown.text !== "" && copyTool(shown.text),
    (shown.status === "done" || shown.status === "stopped") && whyTool(shown),
  );
  const kind = shown === turn ? "turn bot" : "turn bot unused";
  const heading = h("span", { class: "sr" }, `${name} said:`);
  const box = bubble(shown);
  return h("article", { class: kind, "data-turn": turn.id }, heading, box, evidencePanel(shown, box), facts);
}

/**
 * Only the last reply can be regenerated or undone. The node itself is kept: a new one would be announced again.
 * @param {HTMLElement} node of a bot's turn
 * @param {boolean} last
 */
export function markLast(node, last) {
  if (node.classList.toggle("last", last) === Boolean(node.querySelector(".ending"))) return;
  if (!last) for (const part of node.querySelectorAll(".ending")) part.remove();
  else {
    const onclick = () => regenerate().catch(showError);
    const back = tool("Undo the last message", "undo", () => undo().catch(showError));
    const failed = node.querySelector(".bubble.failed");
    const retry = h("button", { type: "button", class: "button small ending", onclick }, icon("again"), "Try again");
    failed?.append(retry);
    const again = !failed && tool("Regenerate the reply", "again", onclick);
    node.querySelector(".below")?.append(h("span", { class: "ending" }, again, back));
  }
}

/**
 * A reply that is being generated.
 * @param {Turn} turn
 * @returns {{node: HTMLElement, text: Text}} `text` is the node to append to
 */
export function streamingTurn(turn) {
  const name = botName(turn.bot);
  const dots = h("span", { class: "typing" }, h("i"), h("i"), h("i"), h("span", { class: "sr" }, `${name} is typing`));
  const text = document.createTextNode(turn.text);
  const box = h("div", { class: turn.text ? "bubble growing" : "bubble", dir: "auto" }, turn.text ? text : dots);
  const facts = below(
    h("span", { class: `who ${tone(turn.bot)}` }, name),
    turn.attempts > 1 && fact(`attempt ${turn.attempts}`),
  );
  const node = h("article", { class: "turn bot streaming", "aria-live": "off", "aria-busy": "true" }, box, facts);
  return { node, text };
}

/** @param {string} bot @returns {HTMLElement} */
export const divider = (bot) => h("p", { class: "switch" }, `now talking to ${botName(bot)}`);

/** @param {() => Promise<void>} load @returns {HTMLElement} */
export function earlierButton(load) {
  const onclick = () => load().catch(showError);
  return h("p", { class: "earlier", "aria-live": "off" }, h("button", { type: "button", class: "button small", onclick }, "Show earlier messages"));
}
