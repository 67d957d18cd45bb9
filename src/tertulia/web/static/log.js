// The log of messages as a function of the state. Nodes are kept by key, so that a change touches only what changed: a
// screen reader hears a reply once and whole, because the one in the making stands in an aria-live="off" node that is
// replaced by a new one when it is done.

import { $ } from "./dom.js";
import { onPiece } from "./making.js";
import { botName, busy, state } from "./state.js";
import { botTurn, divider, livingTurn, markLast, unsentTurn, userTurn } from "./turns.js";

/**
 * A row is rebuilt when its signature changes.
 * @typedef {{key: string, signature: string, build: () => HTMLElement}} Row
 */

/** Nearer to the end than this the log follows what is added. */
const NEAR_PX = 96;
/** Time for a whole conversation to appear without being read out. */
const QUIET_MS = 200;
/** What is seen to arrive; a finished turn only takes the place of one of these. */
const ARRIVING = ".living, .unsent, .switch";

const log = $("log");
const scroller = $("scroller");
/** @type {Map<string, {signature: string, node: HTMLElement}>} */
let shown = new Map();
/** @type {string | null | undefined} */
let shownId;
/** @type {Text | null} */
let livingText = null;

const nearEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;

/** Scroll to the last message. */
export function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
}

/** @param {import("./api.js").Turn} turn @returns {Row} */
function row(turn) {
  if (turn.speaker === "user") return { key: turn.id, signature: "", build: () => userTurn(turn) };
  if (turn.status !== "pending") {
    return { key: turn.id, signature: `${turn.status} ${botName(turn.bot)}`, build: () => botTurn(turn) };
  }
  const signature = `${turn.bot} ${turn.attempts} ${turn.text !== ""}`;
  const build = () => {
    const { node, text } = livingTurn(turn);
    livingText = text;
    return node;
  };
  return { key: "living", signature, build };
}

/** All that is to be seen, in order: the turns, and a divider wherever the bot changes. @returns {Row[]} */
function rows() {
  const { turns, bot } = state.conversation;
  /** @type {Row[]} */
  const found = [];
  let speaking = turns.find((turn) => turn.speaker === "bot")?.bot ?? bot;
  let changes = 0;
  /** @param {string | null | undefined} next */
  const turnTo = (next) => {
    if (!next || next === speaking) return;
    speaking = next;
    changes += 1; // a divider keeps its node when the message it waited for arrives
    found.push({ key: `switch ${changes}`, signature: botName(next), build: () => divider(next) });
  };
  turns.forEach((turn, place) => {
    turnTo(turn.speaker === "bot" ? turn.bot : turns[place + 1]?.bot);
    found.push(row(turn));
  });
  if (turns.length) turnTo(bot);
  if (state.unsent) {
    const { key, text } = state.unsent;
    found.push({ key, signature: String(state.lost), build: () => unsentTurn(text) });
  }
  return found;
}

/** Put exactly these nodes in the log, moving none that already stands right. @param {HTMLElement[]} nodes */
function arrange(nodes) {
  const focused = log.contains(document.activeElement);
  const wanted = new Set(nodes);
  for (const node of [...log.children]) if (!wanted.has(/** @type {HTMLElement} */ (node))) node.remove();
  nodes.forEach((node, place) => {
    if (log.children[place] !== node) log.insertBefore(node, log.children[place] ?? null);
    if (node.classList.contains("bot")) markLast(node, place === nodes.length - 1 - trailing(nodes) && !busy());
  });
  if (focused && !log.contains(document.activeElement)) $("text").focus(); // the button that was pressed is gone
}

/** @param {HTMLElement[]} nodes @returns {number} of dividers after the last turn */
const trailing = (nodes) => (nodes.at(-1)?.classList.contains("switch") ? 1 : 0);

/** Bring the log up to date with the state. */
export function showLog() {
  const { id } = state.conversation;
  const begun = shownId === null && shown.size > 0 && state.unsent !== null; // the new conversation got its id
  const other = shownId !== id && !begun;
  const follow = other || nearEnd();
  const before = other ? new Map() : shown;
  if (other) quietly();
  shown = new Map();
  const nodes = rows().map(({ key, signature, build }) => {
    const old = before.get(key);
    const node = old?.signature === signature ? old.node : build();
    if (!old && !other && node.matches(ARRIVING)) node.classList.add("fresh");
    shown.set(key, { signature, node });
    return node;
  });
  arrange(nodes);
  shownId = id;
  if (follow && nodes.length) toEnd();
}

/** A whole conversation that appears at once is there to be read, not to be announced. */
function quietly() {
  log.setAttribute("aria-live", "off");
  window.setTimeout(() => log.setAttribute("aria-live", "polite"), QUIET_MS);
}

/** Keep the end in sight for whoever is there, and offer it to others. @param {HTMLElement} button shown to those */
export function keepEnd(button) {
  let there = true;
  const look = () => {
    there = nearEnd();
    button.hidden = there;
  };
  scroller.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(log);
  // A notice, a longer draft or a phone's keyboard takes room from the log.
  new ResizeObserver(() => there && shown.size > 0 && toEnd()).observe(scroller);
  button.addEventListener("click", () => {
    toEnd();
    $("text").focus();
  });
}

onPiece((text) => {
  const follow = nearEnd();
  if (livingText?.isConnected) livingText.data = text;
  else showLog();
  if (follow) toEnd();
});
