// Following one reply to its end, over as many connections as it takes.

import * as api from "./api.js";
import { mark, onKick, pause } from "./link.js";
import { serverEvents } from "./sse.js";

/**
 * @typedef {object} Listener
 * @property {(turn: api.Turn) => void} user the message as the server stored it
 * @property {(so_far: {id: string, text: string}) => void} start
 * @property {(piece: {text: string}) => void} piece
 * @property {(turn: api.Turn) => void} done
 * @property {(problem: {message: string, hint: string}) => void} error
 */

/**
 * One connection: pass its events on until the reply has ended.
 * @param {(signal: AbortSignal) => Promise<Response>} connect
 * @param {AbortSignal} signal
 * @param {Listener} listener
 */
async function listen(connect, signal, listener) {
  const response = await connect(signal);
  mark(false);
  for await (const { event, data } of serverEvents(response)) {
    signal.throwIfAborted();
    listener[/** @type {keyof Listener} */ (event)]?.(data);
    if (event === "done" || event === "error") return;
  }
  throw new api.LinkError("cut short");
}

/**
 * Ask for a reply and follow it. `ask` is repeated (with its key, so it counts once) until the server has confirmed it;
 * from then on lost connections re-attach by GET events. Returns when the reply has ended or `signal` is aborted.
 * @param {string} id of the conversation
 * @param {((signal: AbortSignal) => Promise<Response>) | null} ask null when the reply is already in the making
 * @param {AbortSignal} signal
 * @param {Listener} listener
 */
export async function follow(id, ask, signal, listener) {
  let confirmed = ask === null;
  let attempt = 0;
  /** @type {Listener} */
  const confirming = {
    ...listener,
    user: (turn) => ((confirmed = true), listener.user(turn)),
    start: (soFar) => ((confirmed = true), (attempt = 0), listener.start(soFar)),
  };
  while (!signal.aborted) {
    const line = new AbortController();
    const forget = onKick(() => line.abort());
    const connect = confirmed || !ask ? (/** @type {AbortSignal} */ s) => api.events(id, s) : ask;
    try {
      return await listen(connect, AbortSignal.any([signal, line.signal]), confirming);
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!line.signal.aborted) {
        if (!(error instanceof api.LinkError)) throw error;
        mark(true);
        await pause(attempt, signal);
        attempt += 1;
      }
    } finally {
      forget();
      line.abort();
    }
  }
  return undefined;
}
