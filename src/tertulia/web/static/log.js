// The log of messages as a function of the state. Nodes are kept by key, so that a change touches only what changed. A
// screen reader announces a reply once and in full: while it is generated it is in an aria-live="off" node, which is
// replaced by a new one when it is done.

import { $ } from "./dom.js";
import { viewed } from "./attempts.js";
import { loadEarlier, onPiece } from "./replies.js";
import { botName, busy, state } from "./state.js";
import { botTurn, divider, earlierButton, streamingTurn, markLast, unsentTurn, userTurn } from "./turns.js";

/**
 * A row is rebuilt when its signature changes.
 * @typedef {{key: string, signature: string, build: () => HTMLElement}} Row
 */

/** Closer to the end than this, the log scrolls with what is added. */
const NEAR_PX = 96;
/** Time for a full conversation to appear without being announced. */
const QUIET_MS = 200;
/** What is animated as it arrives; a finished turn only replaces one of these. */
const ARRIVING = ".streaming, .unsent, .switch";

const log = $("log");
const scroller = $("scroller");
/** @type {Map<string, {signature: string, node: HTMLElement}>} */
let shown = new Map();
/** @type {string | null | undefined} */
let shownId;
/** @type {Text | null} */
let streamingText = null;

const nearEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;

/** Scroll to the last message. */
export function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
}

/** @param {import("./api.js").Turn} turn @returns {Row} */
function row(turn) {
  const { times, markdown, editing, conversation } = state;
  const isLast = conversation.turns.at(-1)?.id === turn.id;
  const look = [times, viewed(turn).id, turn.attempts, viewed(turn) !== turn && isLast];
  if (turn.speaker === "user") {
    const signature = [...look, editing?.id === turn.id].join(" ");
    return { key: turn.id, signature, build: () => userTurn(turn) };
  }
  if (turn.status !== "pending") {
    const signature = [...look, markdown, turn.status, turn.hint, botName(viewed(turn).bot)].join(" ");
    return { key: turn.id, signature, build: () => botTurn(turn) };
  }
  const signature = `${turn.bot} ${turn.attempts} ${turn.text !== ""}`;
  const build = () => {
    const { node, text } = streamingTurn(turn);
    streamingText = text;
    return node;
  };
  return { key: "streaming", signature, build };
}

/** All rows in order: the turns, and a divider wherever the bot changes. @returns {Row[]} */
function rows() {
  const { turns, bot, earlier } = state.conversation;
  /** @type {Row[]} */
  const all = [];
  if (earlier !== null) all.push({ key: "earlier", signature: "", build: () => earlierButton(showEarlier) });
  let speaking = turns.find((turn) => turn.speaker === "bot")?.bot ?? bot;
  let changes = 0;
  /** @param {string | null | undefined} next */
  const switchTo = (next) => {
    if (!next || next === speaking) return;
    speaking = next;
    changes += 1; // a divider keeps its node when the next message arrives
    all.push({ key: `switch ${changes}`, signature: botName(next), build: () => divider(next) });
  };
  turns.forEach((turn, index) => {
    switchTo(turn.speaker === "bot" ? turn.bot : turns[index + 1]?.bot);
    all.push(row(turn));
  });
  if (turns.length) switchTo(bot);
  if (state.unsent) {
    const { key, text } = state.unsent;
    all.push({ key, signature: String(state.lost), build: () => unsentTurn(text) });
  }
  return all;
}

/** Put exactly these nodes into the log, without moving those already in position. @param {HTMLElement[]} nodes */
function arrange(nodes) {
  const focused = log.contains(document.activeElement);
  const wanted = new Set(nodes);
  for (const node of [...log.children]) if (!wanted.has(/** @type {HTMLElement} */ (node))) node.remove();
  nodes.forEach((node, index) => {
    if (log.children[index] !== node) log.insertBefore(node, log.children[index] ?? null);
    if (node.classList.contains("bot")) markLast(node, index === nodes.length - 1 - trailing(nodes) && !busy());
  });
  if (focused && !log.contains(document.activeElement)) $("text").focus(); // the button that was pressed is gone
}

/** @param {HTMLElement[]} nodes @returns {number} of dividers after the last turn */
const trailing = (nodes) => (nodes.at(-1)?.classList.contains("switch") ? 1 : 0);

/** Load earlier turns, and keep in place what one was reading. */
async function showEarlier() {
  const fromEnd = scroller.scrollHeight - scroller.scrollTop;
  muteBriefly();
  await loadEarlier();
  scroller.scrollTop = scroller.scrollHeight - fromEnd;
}

/** Update the log from the state. */
export function showLog() {
  const { id } = state.conversation;
  const justCreated = shownId === null && shown.size > 0 && state.unsent !== null;
  const other = shownId !== id && !justCreated;
  const follow = other || nearEnd();
  const before = other ? new Map() : shown;
  if (other) muteBriefly();
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
  // A reply that has just failed is where one has to act, so it must be in sight.
  const last = nodes.at(-1 - trailing(nodes));
  const failed = last?.querySelector(".bubble.failed") && ![...before.values()].some(({ node }) => node === last);
  if ((follow || failed) && nodes.length) toEnd();
}

/** A full conversation that appears at once must not be announced. */
function muteBriefly() {
  log.setAttribute("aria-live", "off");
  window.setTimeout(() => log.setAttribute("aria-live", "polite"), QUIET_MS);
}

/** Keep the end in view for readers who are there, and offer a button to others. @param {HTMLElement} button */
export function followEnd(button) {
  let atEnd = true;
  const update = () => {
    atEnd = nearEnd();
    button.hidden = atEnd;
  };
  scroller.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(log);
  // A notice, a longer draft or a phone's keyboard takes space from the log.
  new ResizeObserver(() => atEnd && shown.size > 0 && toEnd()).observe(scroller);
  button.addEventListener("click", () => {
    toEnd();
    $("text").focus();
  });
}

onPiece((text) => {
  const follow = nearEnd();
  if (streamingText?.isConnected) streamingText.data = text;
  else showLog();
  if (follow) toEnd();
});
