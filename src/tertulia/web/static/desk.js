// What one does about conversations: choose the bot and the persona, rename, delete, erase.

import * as api from "./api.js";
import * as keep from "./keep.js";
import { refreshList } from "./making.js";
import { change, changeConversation, state } from "./state.js";

/** Changes reach the server one after the other. @type {Promise<unknown>} */
let changes = Promise.resolve();

/** Wait until the server knows of every change: who switches the bot and speaks at once speaks to the new one. */
export const settled = () => changes;

/**
 * Change the open conversation here and, once it exists there, in the server; taken back when the server refuses.
 * @param {{bot?: string, persona?: string[] | null, title?: string}} patch
 */
async function update(patch) {
  const { id, bot, persona, title } = state.conversation;
  changeConversation(patch);
  if (!id) return;
  try {
    const sent = changes.then(() => api.update(id, patch));
    changes = sent.catch(() => {}); // told below, by the one who made it
    await sent;
  } catch (error) {
    if (state.conversation.id === id) changeConversation({ bot, persona, title });
    throw error;
  }
  await refreshList();
}

/** @param {string} bot */
export async function chooseBot(bot) {
  await update({ bot });
  keep.keepBot(bot);
}

/** @param {string[] | null} persona */
export const choosePersona = (persona) => update({ persona: persona?.length ? persona : null });

/** @param {string} title */
export const rename = (title) => update({ title });

/** Delete the open conversation, here and in the server. */
export async function remove() {
  const { id } = state.conversation;
  if (!id) return;
  await api.remove(id);
  keep.forgetConversation(id);
  await refreshList();
}

/** Erase all that the server and this browser keep of this visitor. */
export async function eraseEverything() {
  await api.eraseMe();
  keep.forgetEverything();
  change({ list: [] });
}
