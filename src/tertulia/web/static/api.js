// The server's page API, one function per route. Two things can go wrong and they are told apart everywhere: the server
// said no (ApiError, shown to the user), or it was not reached (LinkError, tried again).

/**
 * @typedef {{id: string, name: string, summary: string, streams: boolean}} Bot
 * @typedef {{id: string, name: string, sentences: string[]}} Persona
 * @typedef {{id: string, title: string, bot: string, updated: string, turns: number}} Line
 * @typedef {{id: string, speaker: "user" | "bot", text: string, status: "done" | "pending" | "stopped" | "failed",
 *   bot: string | null, seconds: number | null, created: string, error: string | null, attempts: number}} Turn
 * @typedef {{id: string | null, title: string, bot: string, persona: string[] | null, turns: Turn[]}} Conversation
 */

export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {string} hint */
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

export class LinkError extends Error {}

/** @param {Response} response @returns {Promise<ApiError | LinkError>} */
async function problem(response) {
  const body = await response.json().catch(() => null);
  if (body?.error?.message) return new ApiError(response.status, body.error.message, body.error.hint ?? "");
  // A 5xx that does not speak our language comes from a proxy whose server is away: as good as no answer.
  if (response.status >= 500) return new LinkError(`status ${response.status}`);
  return new ApiError(response.status, `The server refused this (status ${response.status}).`, "");
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function call(method, path, body, signal) {
  const headers = { "content-type": "application/json" };
  const sent = body === undefined ? {} : { headers, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`api/${path}`, { method, signal, cache: "no-store", ...sent });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new LinkError(String(error));
  }
  if (!response.ok) throw await problem(response);
  return response;
}

/** @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
async function json(method, path, body, signal) {
  const response = await call(method, path, body, signal);
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new LinkError(String(error)); // cut off in the middle of the answer
  }
}

/** @param {string} id */
const at = (id) => `conversations/${encodeURIComponent(id)}`;

/** @returns {Promise<Bot[]>} */
export const bots = () => json("GET", "bots");
/** @returns {Promise<Persona[]>} */
export const personas = () => json("GET", "personas");
/** @returns {Promise<Line[]>} */
export const conversations = () => json("GET", "conversations");
/** @param {string} bot @param {string[] | null} persona @returns {Promise<Conversation>} */
export const create = (bot, persona) => json("POST", "conversations", { bot, persona });
/** @param {string} id @param {AbortSignal} signal @returns {Promise<Conversation>} */
export const conversation = (id, signal) => json("GET", at(id), undefined, signal);
/** @param {string} id @param {{bot?: string, persona?: string[] | null, title?: string}} change */
export const update = (id, change) => call("PATCH", at(id), change);
/** @param {string} id */
export const remove = (id) => call("DELETE", at(id));
/** @param {string} id @returns {Promise<Turn>} */
export const stop = (id) => json("POST", `${at(id)}/stop`);
/** @param {string} id @returns {Promise<Conversation>} */
export const undo = (id) => json("POST", `${at(id)}/undo`);
/** @returns {Promise<{erased: number}>} */
export const eraseMe = () => json("DELETE", "me");

// The streams; their answers are read by sse.js.
/** @param {string} id @param {string} text @param {string} key @param {AbortSignal} signal */
export const say = (id, text, key, signal) => call("POST", `${at(id)}/messages`, { text, key, stream: true }, signal);
/** @param {string} id @param {string} key @param {AbortSignal} signal */
export const regenerate = (id, key, signal) => call("POST", `${at(id)}/regenerate`, { key, stream: true }, signal);
/** @param {string} id @param {AbortSignal} signal */
export const events = (id, signal) => call("GET", `${at(id)}/events`, undefined, signal);

/** @param {string} id @param {"json" | "txt" | "md"} format */
export const exportLink = (id, format) => `api/${at(id)}/export?format=${format}`;
