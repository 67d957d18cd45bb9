// A reply in the making: it is followed to its end, and what comes is put into the state.

import * as api from "./api.js";
import { follow } from "./follow.js";
import * as keep from "./keep.js";
import { untilReached } from "./link.js";
import { change, changeConversation, complain, pending, state } from "./state.js";

/** Stands for the bot's turn until the server has told its id. */
export const WAITING = "waiting";

/** Ends whatever the page is waiting for; the reply itself goes on in the server. */
let current = new AbortController();
let stopWanted = false;

/** Stop the reply as soon as the server knows of it. */
export const stopOnceStarted = () => (stopWanted = true);

/** @returns {AbortSignal} of the new thing to wait for; the former one is let go */
export function begin() {
  current.abort();
  current = new AbortController();
  stopWanted = false;
  return current.signal;
}

/** @type {Set<(text: string) => void>} */
const pieceListeners = new Set();
/** @param {(text: string) => void} listener told of the text so far, faster than by a change of the whole state */
export const onPiece = (listener) => pieceListeners.add(listener);
/** @type {(text: string) => void} */
let giveBack = () => {};
/** @param {(text: string) => void} listener takes back a text that was not sent after all */
export const onGiveBack = (listener) => (giveBack = listener);

/** @param {api.Turn} turn put in the place of the one with its id, or at the end */
export function put(turn) {
  const turns = state.conversation.turns.filter((other) => other.id !== WAITING);
  const place = turns.findIndex((other) => other.id === turn.id);
  changeConversation({ turns: place < 0 ? [...turns, turn] : turns.with(place, turn) });
}

/** @param {string} id @param {number} [attempts] @returns {api.Turn} */
export function pendingTurn(id, attempts = 1) {
  const { bot } = state.conversation;
  return { id, speaker: "bot", text: "", status: "pending", bot, seconds: null, created: "", error: null, attempts };
}

/** @param {string} id of the conversation whose reply is to end where it is */
export async function stopNow(id) {
  stopWanted = false;
  const turn = await api.stop(id).catch((error) => {
    if (error instanceof api.ApiError && error.status === 409) return null; // it has just ended by itself
    throw error;
  });
  if (turn && id === state.conversation.id) put(turn);
}

/** @param {string} id @param {AbortSignal} signal @returns {import("./follow.js").Listener} */
function listener(id, signal) {
  return {
    user(turn) {
      if (state.unsent) keep.dropUnsent(state.unsent.key);
      change({ unsent: null });
      put(turn);
      put(pendingTurn(WAITING));
      refreshList();
    },
    start(soFar) {
      const { attempts = 1, bot = state.conversation.bot } = pending() ?? {};
      put({ ...pendingTurn(soFar.id, attempts), bot, text: soFar.text });
      if (stopWanted) stopNow(id).catch(complain);
    },
    piece({ text }) {
      const turn = pending();
      if (!turn) return;
      turn.text += text;
      for (const told of pieceListeners) told(turn.text);
    },
    done(turn) {
      put(turn);
      refreshList();
    },
    error(problem) {
      complain(problem);
      settle(reload(id, signal, { follow: false }), signal);
    },
  };
}

/**
 * Wait for something that is moot once the page has turned to something else.
 * @param {Promise<void>} work
 * @param {AbortSignal} signal
 */
export async function settle(work, signal) {
  try {
    await work;
  } catch (error) {
    if (!signal.aborted) complain(error);
  }
}

/** @param {string} id @param {((signal: AbortSignal) => Promise<Response>) | null} ask @param {AbortSignal} signal */
export async function followToTheEnd(id, ask, signal) {
  try {
    await follow(id, ask, signal, listener(id, signal));
  } catch (error) {
    if (signal.aborted) return;
    complain(error);
    unsay();
    // A refused question may have met another tab's reply; but a refused look at a reply is not asked for again.
    await reload(id, signal, { follow: ask !== null });
  }
}

/**
 * Show what the server has, and follow the reply that is in the making there.
 * @param {string | null} id null for a conversation not begun: there is only the line to be restored
 * @param {AbortSignal} signal
 * @param {{follow?: boolean}} [options]
 */
export async function reload(id, signal, { follow: following = true } = {}) {
  if (id === null) {
    if (state.lost) change({ list: await untilReached(api.conversations, signal) });
    return;
  }
  const conversation = await untilReached(() => api.conversation(id, signal), signal);
  signal.throwIfAborted();
  change({ conversation, ready: true });
  if (following && pending()) await followToTheEnd(id, null, signal);
}

/** Put a text back into the composer. @param {string} text */
export const handBack = (text) => giveBack(text);

/** Give the unsent text back to the composer. */
export function unsay() {
  const unsent = state.unsent;
  if (!unsent) return;
  keep.dropUnsent(unsent.key);
  change({ unsent: null });
  giveBack(unsent.text);
}

/** The list beside the conversation, and with it the title that the server gave. */
export async function refreshList() {
  const list = await api.conversations().catch(() => null);
  if (!list) return; // it is only the list; the next change brings it
  const line = list.find((known) => known.id === state.conversation.id);
  if (line && line.title !== state.conversation.title) changeConversation({ title: line.title });
  change({ list });
}
