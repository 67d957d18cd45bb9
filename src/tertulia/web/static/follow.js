// Follows one reply to its end, over as many connections as it takes.

import * as api from "./api.js";
import { backOff, onWake, setLost } from "./connection.js";
import { serverEvents } from "./sse.js";

/**
 * @typedef {object} Listener
 * @property {(turn: api.Turn) => void} user the message as the server stored it
 * @property {(soFar: {id: string, text: string}) => void} start
 * @property {(piece: {text: string}) => void} piece
 * @property {(turn: api.Turn) => void} done
 * @property {(details: {message: string, hint: string}) => void} error
 */

/**
 * One connection: pass its events on until the reply has ended.
 * @param {(signal: AbortSignal) => Promise<Response>} connect
 * @param {AbortSignal} signal
 * @param {Listener} listener
 */
async function listen(connect, signal, listener) {
  const response = await connect(signal);
  setLost(false);
  for await (const { event, data } of serverEvents(response)) {
    signal.throwIfAborted();
    listener[/** @type {keyof Listener} */ (event)]?.(data);
    if (event === "done" || event === "error") return;
  }
  throw new api.ConnectionError("stream ended early");
}

/**
 * Request a reply and follow it. `ask` is repeated (with its key, so it counts once) until the server confirms it;
 * after that, lost connections re-attach by GET events. Returns when the reply has ended or `signal` is aborted.
 * @param {string} id of the conversation
 * @param {((signal: AbortSignal) => Promise<Response>) | null} ask null when the reply is already pending
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
    const connection = new AbortController();
    const unsubscribe = onWake(() => connection.abort());
    const connect = confirmed || !ask ? (/** @type {AbortSignal} */ s) => api.events(id, s) : ask;
    try {
      return await listen(connect, AbortSignal.any([signal, connection.signal]), confirming);
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!connection.signal.aborted) {
        if (!(error instanceof api.ConnectionError)) throw error;
        setLost(true);
        await backOff(attempt, signal);
        attempt += 1;
      }
    } finally {
      unsubscribe();
      connection.abort();
    }
  }
  return undefined;
}
