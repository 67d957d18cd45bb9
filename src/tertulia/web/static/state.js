// The state of the page in one object; views are functions of it and are called when it changes.

import { ConnectionError } from "./api.js";

/**
 * A message that the server has not confirmed yet. `key` makes sending it twice harmless.
 * @typedef {{key: string, id: string | null, text: string, bot: string, persona: string[] | null,
 *   evidence?: string[] | null}} Unsent
 * @typedef {import("./api.js").Turn} Turn
 *
 * @typedef {object} State
 * @property {import("./api.js").Bot[]} bots
 * @property {import("./api.js").Persona[]} personas
 * @property {import("./api.js").ConversationSummary[]} list
 * @property {boolean} more whether there are conversations after those in the list
 * @property {import("./api.js").Conversation} conversation the open one; its id is null until its first message is sent
 * @property {Unsent | null} unsent
 * @property {boolean} ready whether the open conversation has been loaded
 * @property {boolean} lost whether the connection to the server is lost
 * @property {{message: string, hint: string} | null} alert
 * @property {{id: string, text: string} | null} editing the message that is being edited
 * @property {import("./api.js").SearchHit[] | null} hits what a search found; null without a search
 * @property {boolean} times whether each turn shows its time
 * @property {boolean} markdown whether Markdown in replies is formatted
 */

/** @type {State} */
export const state = {
  bots: [],
  personas: [],
  list: [],
  more: false,
  conversation: { id: null, title: "", bot: "", persona: null, evidence: null, turns: [], earlier: null },
  unsent: null,
  ready: false,
  lost: false,
  alert: null,
  editing: null,
  hits: null,
  times: false,
  markdown: true,
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

/** The bot's turn that is being generated, if any. @returns {Turn | undefined} */
export function pending() {
  return state.conversation.turns.find((turn) => turn.status === "pending");
}

/** Whether the page waits for a reply. */
export const busy = () => Boolean(state.unsent ?? pending());

/** @param {string | null} id @returns {string} the bot's display name; its id if it is no longer served */
export const botName = (id) => state.bots.find((bot) => bot.id === id)?.name ?? id ?? "a bot";

/** @param {unknown} error anything that was thrown, shown to the user */
export function showError(error) {
  if (error instanceof ConnectionError) {
    change({ alert: { message: "The server could not be reached.", hint: "Check the connection and try again." } });
    return;
  }
  const { message = String(error), hint = "" } = /** @type {any} */ (error);
  change({ alert: { message, hint } });
}
