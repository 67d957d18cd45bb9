// What one does in a conversation: open it, say something, stop, ask again, take back.

import * as api from "./api.js";
import { settled } from "./desk.js";
import * as keep from "./keep.js";
import { untilReached } from "./link.js";
import {
  WAITING,
  begin,
  followToTheEnd,
  handBack,
  pendingTurn,
  put,
  refreshList,
  reload,
  settle,
  stopNow,
  stopOnceStarted,
  unsay,
} from "./making.js";
import { busy, change, changeConversation, pending, state } from "./state.js";

/** @typedef {import("./state.js").Unsent} Unsent */

/** Keys of messages that are just being brought to the server. @type {Set<string>} */
const underway = new Set();

/** @param {string | null} id null for a new conversation @returns {Promise<void>} */
export async function open(id) {
  const signal = begin();
  const left = state.unsent;
  const unsent = keep.unsentOf(id);
  const bot = state.bots.some((known) => known.id === keep.lastBot()) ? keep.lastBot() : (state.bots[0]?.id ?? "");
  change({
    conversation: { id, title: "", bot: unsent?.bot || bot, persona: unsent?.persona ?? null, turns: [] },
    unsent,
    ready: id === null,
    alert: null,
  });
  if (left) deliverOthers();
  try {
    await reload(id, signal, { follow: !unsent });
    if (unsent) await deliver(unsent, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Look again, as after a while in another tab; a reply that is being followed is left alone. */
export async function refresh() {
  const { id } = state.conversation;
  if (busy() || !state.ready || state.lost) return;
  await refreshList();
  if (!id || busy() || id !== state.conversation.id) return;
  const signal = begin();
  await settle(reload(id, signal), signal);
}

/** @param {string} text @returns {Promise<void>} */
export async function say(text) {
  const { id, bot, persona } = state.conversation;
  const unsent = { key: keep.newKey(), id, text, bot, persona };
  keep.keepUnsent(unsent);
  const signal = begin();
  change({ unsent, alert: null });
  await settle(deliver(unsent, signal), signal);
}

/**
 * Begin the conversation of a first message. Not to be broken off: the server may have made it already.
 * @param {Unsent} unsent gets its id
 * @returns {Promise<api.Conversation>}
 */
async function beginWith(unsent) {
  underway.add(unsent.key);
  try {
    const made = await api.create(unsent.bot, unsent.persona);
    unsent.id = made.id;
    keep.keepUnsent(unsent);
    return made;
  } finally {
    underway.delete(unsent.key);
  }
}

/** @param {Unsent} unsent @param {AbortSignal} signal */
async function deliver(unsent, signal) {
  if (unsent.id === null) {
    const made = await untilReached(() => beginWith(unsent), signal).catch((error) => {
      if (!signal.aborted) unsay();
      throw error;
    });
    if (signal.aborted) {
      await deliverOthers();
      return;
    }
    history.replaceState(null, "", `#c=${made.id}`);
    change({ conversation: made, ready: true });
  }
  const { id, text, key } = unsent;
  await settled();
  await followToTheEnd(/** @type {string} */ (id), (line) => api.say(id ?? "", text, key, line), signal);
}

/** Bring to the server what was left behind in other conversations, as by leaving one while the line was down. */
export async function deliverOthers() {
  for (const unsent of keep.unsent()) {
    if (unsent.id === state.conversation.id || underway.has(unsent.key)) continue;
    const line = new AbortController();
    try {
      if (unsent.id === null) await beginWith(unsent);
      underway.add(unsent.key);
      await api.say(unsent.id ?? "", unsent.text, unsent.key, line.signal);
      keep.dropUnsent(unsent.key);
      await refreshList();
    } catch (error) {
      // With its conversation gone there is no place for it; anything else is left for when its conversation is opened.
      if (error instanceof api.ApiError && error.status === 404) keep.dropUnsent(unsent.key);
    } finally {
      underway.delete(unsent.key);
      line.abort(); // nobody here reads the reply
    }
  }
}

/** Stop the reply in the making, or sending while the line is down. */
export async function stop() {
  const { id } = state.conversation;
  if (state.unsent && state.lost) {
    const signal = begin();
    unsay();
    await settle(reload(id, signal), signal); // in case it had arrived after all
  } else if (state.unsent || pending()?.id === WAITING) {
    stopOnceStarted();
  } else if (pending() && id) {
    await stopNow(id);
  }
}

/** Another reply in the place of the last one. */
export async function regenerate() {
  const { id, turns } = state.conversation;
  const last = turns.at(-1);
  if (busy() || !id || last?.speaker !== "bot") return;
  const signal = begin();
  changeConversation({ turns: [...turns.slice(0, -1), pendingTurn(WAITING, last.attempts + 1)] });
  const key = keep.newKey();
  await settled();
  await settle(followToTheEnd(id, (line) => api.regenerate(id, key, line), signal), signal);
}

/** Take back the last message and what followed; its text goes back to the composer. */
export async function undo() {
  const { id, turns } = state.conversation;
  if (busy() || !id) return;
  const text = turns.findLast((turn) => turn.speaker === "user")?.text ?? "";
  change({ conversation: await api.undo(id) });
  handBack(text);
  refreshList();
}
