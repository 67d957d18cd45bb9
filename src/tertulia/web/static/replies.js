// Replies while they are generated: follows them to their end and puts what arrives into the state.

import * as api from "./api.js";
import { follow } from "./follow.js";
import * as storage from "./storage.js";
import { retryUntilReached } from "./connection.js";
import { change, changeConversation, showError, pending, state } from "./state.js";
import { tellTabs } from "./tabs.js";

/** Id of a turn until the server has sent the real one. */
export const PLACEHOLDER = "waiting";

/** How many conversations the server lists at once. */
const PAGE_CONVERSATIONS = 100;

/** Ends whatever the page is waiting for; the server continues to generate the reply. */
let current = new AbortController();
let stopRequested = false;

/** Stop the reply as soon as the server has started it. */
export const stopOnceStarted = () => (stopRequested = true);

/** @returns {AbortSignal} of a new task to wait for; the previous one is aborted */
export function startTask() {
  current.abort();
  current = new AbortController();
  stopRequested = false;
  return current.signal;
}

/** @type {Set<(text: string) => void>} */
const pieceListeners = new Set();
/** @param {(text: string) => void} listener gets the text so far, without the cost of a state change */
export const onPiece = (listener) => pieceListeners.add(listener);
/** @type {(text: string) => void} */
let restoreListener = () => {};
/** @param {(text: string) => void} listener gets a text that goes back to the composer */
export const onRestoreText = (listener) => (restoreListener = listener);

/** @param {api.Turn} turn replaces the turn with its id, or is added at the end */
export function putTurn(turn) {
  const turns = state.conversation.turns.filter((other) => other.id !== PLACEHOLDER);
  const index = turns.findIndex((other) => other.id === turn.id);
  changeConversation({ turns: index < 0 ? [...turns, turn] : turns.with(index, turn) });
}

/** @param {string} id @param {number} [attempts] @returns {api.Turn} */
export function pendingTurn(id, attempts = 1) {
  const { bot } = state.conversation;
  const empty = { text: "", seconds: null, created: "", error: null, markup: null, evidence: 0 };
  return { ...empty, id, speaker: "bot", status: "pending", bot, attempt: attempts, attempts };
}

/** @param {string} id of the conversation in which to stop generating */
export async function stopNow(id) {
  stopRequested = false;
  const turn = await api.stop(id).catch((error) => {
    if (error instanceof api.ApiError && error.status === 409) return null; // it has just ended by itself
    throw error;
  });
  if (turn && id === state.conversation.id) putTurn(turn);
}

/** @param {string} id @param {AbortSignal} signal @returns {import("./follow.js").Listener} */
function listener(id, signal) {
  return {
    user(turn) {
      if (state.unsent) storage.dropUnsent(state.unsent.key);
      change({ unsent: null });
      const edited = state.conversation.turns.find((other) => other.id === PLACEHOLDER && other.speaker === "user");
      putTurn(edited ? { ...turn, attempt: edited.attempts, attempts: edited.attempts } : turn);
      putTurn(pendingTurn(PLACEHOLDER));
      refreshList();
    },
    start(soFar) {
      const { attempts = 1, bot = state.conversation.bot } = pending() ?? {};
      putTurn({ ...pendingTurn(soFar.id, attempts), bot, text: soFar.text });
      if (stopRequested) stopNow(id).catch(showError);
    },
    piece({ text }) {
      const turn = pending();
      if (!turn) return;
      turn.text += text;
      for (const notify of pieceListeners) notify(turn.text);
    },
    done(turn) {
      putTurn(turn);
      refreshList();
    },
    error(details) {
      runTask(showFailure(id, details, signal), signal);
    },
  };
}

/**
 * Show a failed reply, in one place: in its bubble, which also offers to try again.
 * @param {string} id
 * @param {{message: string, hint: string}} details
 * @param {AbortSignal} signal
 */
async function showFailure(id, details, signal) {
  await reload(id, signal, { follow: false });
  const last = state.conversation.turns.at(-1);
  if (last?.status === "failed") putTurn({ ...last, hint: details.hint });
  else showError(details);
}

/**
 * Wait for work whose errors do not matter once another task has started.
 * @param {Promise<void>} work
 * @param {AbortSignal} signal
 */
export async function runTask(work, signal) {
  try {
    await work;
  } catch (error) {
    if (!signal.aborted) showError(error);
  }
}

/** @param {string} id @param {((signal: AbortSignal) => Promise<Response>) | null} ask @param {AbortSignal} signal */
export async function followReply(id, ask, signal) {
  const events = listener(id, signal);
  if (ask) {
    const { start, done, error } = events;
    events.start = (soFar) => (start(soFar), tellTabs("changed", id));
    events.done = (turn) => (done(turn), tellTabs("changed", id));
    events.error = (details) => (error(details), tellTabs("changed", id));
  }
  try {
    await follow(id, ask, signal, events);
  } catch (error) {
    if (signal.aborted) return;
    showError(error);
    cancelUnsent();
    // A refused message may have met a reply in another tab; but a refused look at a reply is not repeated.
    await reload(id, signal, { follow: ask !== null });
  }
}

/**
 * Show what the server has, and follow its pending reply.
 * @param {string | null} id null for a new conversation: then only the connection is checked
 * @param {AbortSignal} signal
 * @param {{follow?: boolean}} [options]
 */
export async function reload(id, signal, { follow: following = true } = {}) {
  if (id === null) {
    if (state.lost) change({ list: await retryUntilReached(api.conversations, signal) });
    return;
  }
  const conversation = await retryUntilReached(() => api.conversation(id, signal), signal);
  signal.throwIfAborted();
  change({ conversation: withEarlier(conversation), ready: true });
  if (following && pending()) await followReply(id, null, signal);
}

/**
 * What was read anew, with the earlier turns that had been loaded before.
 * @param {api.Conversation} fresh
 * @returns {api.Conversation}
 */
function withEarlier(fresh) {
  const { id, turns, earlier } = state.conversation;
  const overlap = fresh.id === id ? turns.findIndex((turn) => turn.id === fresh.turns[0]?.id) : -1;
  return overlap > 0 ? { ...fresh, turns: [...turns.slice(0, overlap), ...fresh.turns], earlier } : fresh;
}

/** Load the turns before those that are shown. */
export async function loadEarlier() {
  const { id, earlier } = state.conversation;
  if (!id || earlier === null) return;
  const page = await api.conversation(id, undefined, earlier);
  if (id !== state.conversation.id || earlier !== state.conversation.earlier) return;
  changeConversation({ turns: [...page.turns, ...state.conversation.turns], earlier: page.earlier });
}

/** Load the conversations after those that are listed. */
export async function loadOlder() {
  const older = await api.conversations(state.list.at(-1)?.id);
  change({ list: [...state.list, ...older], more: older.length >= PAGE_CONVERSATIONS });
}

/** Put a text back into the composer. @param {string} text */
export const restoreText = (text) => restoreListener(text);

/** Return the unsent text to the composer. */
export function cancelUnsent() {
  const unsent = state.unsent;
  if (!unsent) return;
  storage.dropUnsent(unsent.key);
  change({ unsent: null });
  restoreListener(unsent.text);
}

/** Refresh the list of conversations, and with it the title that the server chose. */
export async function refreshList() {
  const list = await api.conversations().catch(() => null);
  if (!list) return; // not important: the next change refreshes it
  const summary = list.find(({ id }) => id === state.conversation.id);
  if (summary && summary.title !== state.conversation.title) changeConversation({ title: summary.title });
  const last = list.at(-1);
  const older = last ? state.list.filter(({ id, updated }) => updated < last.updated && !list.some((l) => l.id === id)) : [];
  change({ list: [...list, ...older], more: older.length ? state.more : list.length >= PAGE_CONVERSATIONS });
}
