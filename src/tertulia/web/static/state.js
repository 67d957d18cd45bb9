// All the page knows, in one object; views are functions of it and are told when it changes.

import { LinkError } from "./api.js";

/**
 * A message that the server has not confirmed yet. `key` makes sending it twice harmless.
 * @typedef {{key: string, id: string | null, text: string, bot: string, persona: string[] | null}} Unsent
 * @typedef {import("./api.js").Turn} Turn
 *
 * @typedef {object} State
 * @property {import("./api.js").Bot[]} bots
 * @property {import("./api.js").Persona[]} personas
 * @property {import("./api.js").Line[]} list
 * @property {import("./api.js").Conversation} conversation the open one; its id is null until its first message is sent
 * @property {Unsent | null} unsent
 * @property {boolean} ready whether the open conversation has been loaded
 * @property {boolean} lost whether the line to the server is down
 * @property {{message: string, hint: string} | null} alert
 */

/** @type {State} */
export const state = {
  bots: [],
  personas: [],
  list: [],
  conversation: { id: null, title: "", bot: "", persona: null, turns: [] },
  unsent: null,
  ready: false,
  lost: false,
  alert: null,
};

/** @type {Set<(state: State) => void>} */
const listeners = new Set();

/** @param {(state: State) => void} listener */
export function watch(listener) {
  listeners.add(listener);
}

/** @param {Partial<State>} patch */
export function change(patch) {
  Object.assign(state, patch);
  for (const listener of listeners) listener(state);
}

/** @param {Partial<import("./api.js").Conversation>} patch to the open conversation */
export function changeConversation(patch) {
  change({ conversation: { ...state.conversation, ...patch } });
}

/** The bot's turn that is being written, if any. @returns {Turn | undefined} */
export function pending() {
  return state.conversation.turns.find((turn) => turn.status === "pending");
}

/** Whether the page waits for a reply. */
export const busy = () => Boolean(state.unsent ?? pending());

/** @param {string | null} id @returns {string} the bot's name for people; the id of one that is no longer served */
export const botName = (id) => state.bots.find((bot) => bot.id === id)?.name ?? id ?? "a bot";

/** @param {unknown} error anything that was thrown, shown to the user */
export function complain(error) {
  if (error instanceof LinkError) {
    change({ alert: { message: "The server could not be reached.", hint: "Check the connection and try again." } });
    return;
  }
  const { message = String(error), hint = "" } = /** @type {any} */ (error);
  change({ alert: { message, hint } });
}
