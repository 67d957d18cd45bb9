// What outlives a reload, in localStorage: drafts, unsent messages, the bot last chosen. Where storage is forbidden or
// full the page still works; it just forgets.

/** @typedef {import("./state.js").Unsent} Unsent */

const PREFIX = "tertulia.";
const KEPT_FOREVER = `${PREFIX}theme`;

/** @template T @param {() => T} action @param {T} otherwise @returns {T} */
function guarded(action, otherwise) {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

/** @param {string} name @returns {string} */
const read = (name) => guarded(() => localStorage.getItem(PREFIX + name) ?? "", "");

/** @param {string} name @param {string} value empty forgets */
function write(name, value) {
  const key = PREFIX + name;
  guarded(() => (value ? localStorage.setItem(key, value) : localStorage.removeItem(key)), undefined);
}

/** @param {string | null} id of a conversation; null for the one not begun @returns {string} */
export const draft = (id) => read(`draft.${id ?? "new"}`);
/** @param {string | null} id @param {string} text */
export const keepDraft = (id, text) => write(`draft.${id ?? "new"}`, text);

export const lastBot = () => read("bot");
/** @param {string} bot */
export const keepBot = (bot) => write("bot", bot);

/** @returns {Unsent[]} */
export const unsent = () => guarded(() => JSON.parse(read("unsent") || "[]"), []);
/** @param {string | null} id @returns {Unsent | null} */
export const unsentOf = (id) => unsent().find((message) => message.id === id) ?? null;
/** @param {Unsent} message */
export function keepUnsent(message) {
  write("unsent", JSON.stringify([...unsent().filter((other) => other.key !== message.key), message]));
}
/** @param {string} key */
export function dropUnsent(key) {
  const rest = unsent().filter((message) => message.key !== key);
  write("unsent", rest.length ? JSON.stringify(rest) : "");
}

/** @param {string} id */
export function forgetConversation(id) {
  keepDraft(id, "");
  for (const message of unsent()) if (message.id === id) dropUnsent(message.key);
}

export function forgetEverything() {
  guarded(() => {
    for (const name of Object.keys(localStorage)) {
      if (name.startsWith(PREFIX) && name !== KEPT_FOREVER) localStorage.removeItem(name);
    }
  }, undefined);
}

/** A key nobody else has; crypto.randomUUID exists on secure origins alone, and a lab's server often is plain http. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
