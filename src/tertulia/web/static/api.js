// The server's page API, one function per route. Two kinds of errors are kept apart everywhere: the server refused
// (ApiError, shown to the user), or it was not reached (ConnectionError, tried again).

/**
 * @typedef {{id: string, name: string, summary: string, streams: boolean, evidence: boolean}} Bot
 * @typedef {{id: string, name: string, sentences: string[]}} Persona
 * @typedef {{id: string, title: string, bot: string, updated: string, turns: number}} ConversationSummary
 * @typedef {{id: string, speaker: "user" | "bot", text: string, status: "done" | "pending" | "stopped" | "failed",
 *   bot: string | null, seconds: number | null, created: string, error: string | null, hint?: string,
 *   attempt: number, attempts: number, markup: import("./markup.js").Node[] | null, evidence: number}} Turn
 * @typedef {{id: string, title: string, bot: string, updated: string, excerpt: string | null}} SearchHit
 * @typedef {{text: string, score: number | null, dropped: string | null, source: string | null, note?: string | null}} Candidate
 * @typedef {{bot: string | null, text: string, attempt: number, score: number | null, candidates: Candidate[],
 *   settings: Record<string, unknown>, seed: number | null, checkpoint: string | null, version: string | null,
 *   seconds: number | null, finish: string | null, usage: {prompt: number, completion: number} | null,
 *   note: string | null, redraws: number}} Explanation
 * @typedef {{text: string, source: string, score: number | null}} Passage
 * @typedef {{text: string, label: string, summary: string, supported: boolean,
 *   parts: {text: string, unsupported: boolean}[]}} Sentence
 * @typedef {{classifier: string, label: string, sentences: Sentence[]}} Verdict
 * @typedef {{passages: Passage[], verdict: Verdict | null}} ReplyEvidence
 * @typedef {{id: string | null, title: string, bot: string, persona: string[] | null,
 *   evidence: string[] | null, turns: Turn[], earlier: number | null}} Conversation `earlier` is where the turns before these end; null if there are none
 */

export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {string} hint */
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

export class ConnectionError extends Error {}

/** @param {Response} response @returns {Promise<ApiError | ConnectionError>} */
async function errorFrom(response) {
  const body = await response.json().catch(() => null);
  if (body?.error?.message) return new ApiError(response.status, body.error.message, body.error.hint ?? "");
  // A 5xx in another format comes from a proxy that cannot reach our server.
  if (response.status >= 500) return new ConnectionError(`status ${response.status}`);
  return new ApiError(response.status, `The server refused the request (status ${response.status}).`, "");
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
    throw new ConnectionError(String(error));
  }
  if (response.status === 401) location.assign("signin"); // the session has ended
  if (!response.ok) throw await errorFrom(response);
  return response;
}

/** @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
async function json(method, path, body, signal) {
  const response = await call(method, path, body, signal);
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ConnectionError(String(error)); // the response was cut off
  }
}

/** @param {string} id */
const at = (id) => `conversations/${encodeURIComponent(id)}`;

/** @returns {Promise<Bot[]>} */
export const bots = () => json("GET", "bots");
/** @returns {Promise<Persona[]>} */
export const personas = () => json("GET", "personas");
/** @param {string} [before] the last of the page before @returns {Promise<ConversationSummary[]>} */
export const conversations = (before) => json("GET", before ? `conversations?before=${before}` : "conversations");
/** @param {string} words @returns {Promise<SearchHit[]>} */
export const search = (words) => json("GET", `search?q=${encodeURIComponent(words)}`);
/** @param {string} bot @param {string[] | null} persona @param {string[] | null} evidence @returns {Promise<Conversation>} */
export const create = (bot, persona, evidence) => json("POST", "conversations", { bot, persona, evidence });
/** @param {string} id @param {AbortSignal} [signal] @param {number} [before] @returns {Promise<Conversation>} */
export const conversation = (id, signal, before) =>
  json("GET", before === undefined ? at(id) : `${at(id)}?before=${before}`, undefined, signal);
/** @param {string} id @param {{bot?: string, persona?: string[] | null, evidence?: string[] | null, title?: string}} change */
export const update = (id, change) => call("PATCH", at(id), change);
/** @param {string} id */
export const remove = (id) => call("DELETE", at(id));
/** @param {string} id @returns {Promise<Turn>} */
export const stop = (id) => json("POST", `${at(id)}/stop`);
/** @param {string} id @returns {Promise<Conversation>} */
export const undo = (id) => json("POST", `${at(id)}/undo`);
/** @param {string} id @param {string} turn */
const atTurn = (id, turn) => `${at(id)}/turns/${encodeURIComponent(turn)}`;
/** @param {string} id @param {string} turn @returns {Promise<Turn[]>} the oldest first */
export const attempts = (id, turn) => json("GET", `${atTurn(id, turn)}/attempts`);
/** @param {string} id @param {string} turn @returns {Promise<Turn>} */
export const choose = (id, turn) => json("POST", `${atTurn(id, turn)}/choose`);
/** @param {string} id @param {string} turn @returns {Promise<Explanation>} */
export const why = (id, turn) => json("GET", `${atTurn(id, turn)}/why`);
/** @param {string} id @param {string} turn @returns {Promise<ReplyEvidence>} */
export const evidence = (id, turn) => json("GET", `${atTurn(id, turn)}/evidence`);
/** @returns {Promise<{erased: number}>} */
export const eraseMe = () => json("DELETE", "me");

// Streams; sse.js reads the responses.
/** @param {string} id @param {string} text @param {string} key @param {AbortSignal} signal */
export const say = (id, text, key, signal) => call("POST", `${at(id)}/messages`, { text, key, stream: true }, signal);
/** @param {string} id @param {string} key @param {AbortSignal} signal */
export const regenerate = (id, key, signal) => call("POST", `${at(id)}/regenerate`, { key, stream: true }, signal);
/** @param {string} id @param {string} turn @param {string} text @param {string} key @param {AbortSignal} signal */
export const edit = (id, turn, text, key, signal) =>
  call("POST", `${at(id)}/edit`, { turn, text, key, stream: true }, signal);
/** @param {string} id @param {AbortSignal} signal */
export const events = (id, signal) => call("GET", `${at(id)}/events`, undefined, signal);

/** @param {string} id @param {"json" | "txt" | "md"} format */
export const exportLink = (id, format) => `api/${at(id)}/export?format=${format}`;
