// Managing conversations: choosing the bot, the persona and the evidence, renaming, deleting, erasing.

import * as api from "./api.js";
import * as storage from "./storage.js";
import { refreshList } from "./replies.js";
import { change, changeConversation, state } from "./state.js";
import { tellTabs } from "./tabs.js";

/** Changes are sent to the server one after the other. @type {Promise<unknown>} */
let changes = Promise.resolve();

/** Wait until the server has every change, so that a message right after a switch of bots goes to the new one. */
export const changesSaved = () => changes;

/**
 * Change the open conversation here and, once it exists there, on the server; reverted when the server refuses.
 * @param {{bot?: string, persona?: string[] | null, evidence?: string[] | null, title?: string}} patch
 */
async function update(patch) {
  const { id, bot, persona, evidence, title } = state.conversation;
  changeConversation(patch);
  if (!id) return;
  try {
    const sent = changes.then(() => api.update(id, patch));
    changes = sent.catch(() => {}); // reported below, by the caller
    await sent;
    tellTabs("changed", id);
  } catch (error) {
    if (state.conversation.id === id) changeConversation({ bot, persona, evidence, title });
    throw error;
  }
  await refreshList();
}

/** @param {string} bot */
export async function chooseBot(bot) {
  await update({ bot });
  storage.saveBot(bot);
}

/** @param {string[] | null} persona */
export const choosePersona = (persona) => update({ persona: persona?.length ? persona : null });

/** @param {string[] | null} evidence */
export const chooseEvidence = (evidence) => update({ evidence });

/** @param {string} title */
export const rename = (title) => update({ title });

/** Delete the open conversation, here and on the server. */
export async function remove() {
  const { id } = state.conversation;
  if (!id) return;
  await api.remove(id);
  storage.forgetConversation(id);
  tellTabs("removed", id);
  change({ list: state.list.filter((summary) => summary.id !== id) });
  await refreshList();
}

/** Erase all data of this visitor, on the server and in this browser. */
export async function eraseEverything() {
  await api.eraseMe();
  storage.forgetEverything();
  tellTabs("erased");
  change({ list: [] });
}
