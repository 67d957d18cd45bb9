// What survives a reload, in localStorage: drafts, unsent messages, the last chosen bot. Where storage is blocked or
// full the page still works without it.

/** @typedef {import("./state.js").Unsent} Unsent */

const PREFIX = "tertulia.";
const THEME_KEY = `${PREFIX}theme`;

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

/** @param {string} name @param {string} value empty removes it */
function write(name, value) {
  const key = PREFIX + name;
  guarded(() => (value ? localStorage.setItem(key, value) : localStorage.removeItem(key)), undefined);
}

/** @param {string | null} id of a conversation; null for the new one @returns {string} */
export const draft = (id) => read(`draft.${id ?? "new"}`);
/** @param {string | null} id @param {string} text */
export const saveDraft = (id, text) => write(`draft.${id ?? "new"}`, text);

export const lastBot = () => read("bot");
/** @param {string} bot */
export const saveBot = (bot) => write("bot", bot);

/** @param {"times" | "plain"} name of a preference that is off by default @returns {boolean} */
export const isOn = (name) => read(name) === "on";
/** @param {"times" | "plain"} name @param {boolean} on */
export const setOn = (name, on) => write(name, on ? "on" : "");

/** @returns {Unsent[]} */
export const unsent = () => guarded(() => JSON.parse(read("unsent") || "[]"), []);
/** @param {string | null} id @returns {Unsent | null} */
export const unsentOf = (id) => unsent().find((message) => message.id === id) ?? null;
/** @param {Unsent} message */
export function saveUnsent(message) {
  write("unsent", JSON.stringify([...unsent().filter((other) => other.key !== message.key), message]));
}
/** @param {string} key */
export function dropUnsent(key) {
  const rest = unsent().filter((message) => message.key !== key);
  write("unsent", rest.length ? JSON.stringify(rest) : "");
}

/** @param {string} id */
export function forgetConversation(id) {
  saveDraft(id, "");
  for (const message of unsent()) if (message.id === id) dropUnsent(message.key);
}

export function forgetEverything() {
  guarded(() => {
    for (const name of Object.keys(localStorage)) {
      if (name.startsWith(PREFIX) && name !== THEME_KEY) localStorage.removeItem(name);
    }
  }, undefined);
}

/** A unique key; crypto.randomUUID exists on secure origins only, and a lab's server often uses plain http. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
