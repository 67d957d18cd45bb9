// Actions in a conversation: open it, send a message, stop, regenerate, undo.

import * as api from "./api.js";
import { changesSaved } from "./manage.js";
import * as storage from "./storage.js";
import { retryUntilReached } from "./connection.js";
import {
  PLACEHOLDER,
  startTask,
  followReply,
  restoreText,
  pendingTurn,
  refreshList,
  reload,
  runTask,
  stopNow,
  stopOnceStarted,
  cancelUnsent,
} from "./replies.js";
import { busy, change, changeConversation, pending, state } from "./state.js";
import { tellTabs } from "./tabs.js";

/** @typedef {import("./state.js").Unsent} Unsent */

/** Keys of messages that are being sent right now. @type {Set<string>} */
const sending = new Set();

/** @param {string | null} id null for a new conversation @returns {Promise<void>} */
export async function open(id) {
  const signal = startTask();
  const left = state.unsent;
  const unsent = storage.unsentOf(id);
  const ids = state.bots.map((served) => served.id);
  const bot = ids.includes(storage.lastBot()) ? storage.lastBot() : (ids[0] ?? "");
  const { persona = null, evidence = null } = unsent ?? {};
  change({
    conversation: { id, title: "", bot: unsent?.bot || bot, persona, evidence, turns: [], earlier: null },
    unsent,
    ready: id === null,
    alert: null,
    editing: null,
  });
  if (left) deliverFromOthers();
  try {
    await reload(id, signal, { follow: !unsent });
    if (unsent) await deliver(unsent, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Reload, for example after a while in another tab; does nothing while a reply is pending. */
export async function refresh() {
  const { id } = state.conversation;
  if (busy() || !state.ready || state.lost || state.editing) return;
  await refreshList();
  if (!id || busy() || id !== state.conversation.id) return;
  const signal = startTask();
  await runTask(reload(id, signal), signal);
}

/** @param {string} text @returns {Promise<void>} */
export async function say(text) {
  const { id, bot, persona, evidence } = state.conversation;
  const unsent = { key: storage.newKey(), id, text, bot, persona, evidence };
  storage.saveUnsent(unsent);
  const signal = startTask();
  change({ unsent, alert: null });
  await runTask(deliver(unsent, signal), signal);
}

/**
 * Create the conversation of a first message. Cannot be aborted: the server may have created it already.
 * @param {Unsent} unsent gets its id
 * @returns {Promise<api.Conversation>}
 */
async function createFor(unsent) {
  sending.add(unsent.key);
  try {
    const created = await api.create(unsent.bot, unsent.persona, unsent.evidence ?? null);
    unsent.id = created.id;
    storage.saveUnsent(unsent);
    return created;
  } finally {
    sending.delete(unsent.key);
  }
}

/** @param {Unsent} unsent @param {AbortSignal} signal */
async function deliver(unsent, signal) {
  if (unsent.id === null) {
    const created = await retryUntilReached(() => createFor(unsent), signal).catch((error) => {
      if (!signal.aborted) cancelUnsent();
      throw error;
    });
    if (signal.aborted) {
      await deliverFromOthers();
      return;
    }
    history.replaceState(null, "", `#c=${created.id}`);
    change({ conversation: created, ready: true });
  }
  const { id, text, key } = unsent;
  await changesSaved();
  await followReply(/** @type {string} */ (id), (aborted) => api.say(id ?? "", text, key, aborted), signal);
}

/** Send the unsent messages of other conversations, such as one that was left while offline. */
export async function deliverFromOthers() {
  for (const unsent of storage.unsent()) {
    if (unsent.id === state.conversation.id || sending.has(unsent.key)) continue;
    const connection = new AbortController();
    try {
      if (unsent.id === null) await createFor(unsent);
      sending.add(unsent.key);
      await api.say(unsent.id ?? "", unsent.text, unsent.key, connection.signal);
      storage.dropUnsent(unsent.key);
      await refreshList();
    } catch (error) {
      // If its conversation was deleted, drop it; after any other error it is sent when its conversation is opened.
      if (error instanceof api.ApiError && error.status === 404) storage.dropUnsent(unsent.key);
    } finally {
      sending.delete(unsent.key);
      connection.abort(); // nobody here reads the reply
    }
  }
}

/** Stop generating, or stop sending while offline. */
export async function stop() {
  const { id } = state.conversation;
  if (state.unsent && state.lost) {
    const signal = startTask();
    cancelUnsent();
    await runTask(reload(id, signal), signal); // in case it did arrive
  } else if (state.unsent || pending()?.id === PLACEHOLDER) {
    stopOnceStarted();
  } else if (pending() && id) {
    await stopNow(id);
  }
}

/** Generate another reply in place of the last one. */
export async function regenerate() {
  const { id, turns } = state.conversation;
  const last = turns.at(-1);
  if (busy() || !id || last?.speaker !== "bot") return;
  const signal = startTask();
  change({ alert: null });
  changeConversation({ turns: [...turns.slice(0, -1), pendingTurn(PLACEHOLDER, last.attempts + 1)] });
  const key = storage.newKey();
  await changesSaved();
  await runTask(followReply(id, (aborted) => api.regenerate(id, key, aborted), signal), signal);
}

/**
 * Send another version of an earlier message, and continue from there.
 * @param {import("./api.js").Turn} turn
 * @param {string} text
 */
export async function edit(turn, text) {
  const { id, turns } = state.conversation;
  const index = turns.findIndex((other) => other.id === turn.id);
  if (busy() || !id || index < 0) return;
  const signal = startTask();
  const attempts = turn.attempts + 1;
  const version = { ...turn, id: PLACEHOLDER, text, attempt: attempts, attempts };
  change({ editing: null, alert: null });
  changeConversation({ turns: [...turns.slice(0, index), version, pendingTurn(PLACEHOLDER)] });
  const key = storage.newKey();
  await changesSaved();
  await runTask(followReply(id, (aborted) => api.edit(id, turn.id, text, key, aborted), signal), signal);
  // The server refused it: back to the form, so that the text is not lost.
  if (state.conversation.turns.some((other) => other.id === turn.id)) change({ editing: { id: turn.id, text } });
}

/** Remove the last message and what followed; its text goes back to the composer. */
export async function undo() {
  const { id, turns } = state.conversation;
  if (busy() || !id) return;
  const text = turns.findLast((turn) => turn.speaker === "user")?.text ?? "";
  change({ conversation: await api.undo(id), alert: null });
  tellTabs("changed", id);
  restoreText(text);
  refreshList();
}
