// Follows a reply. The request is repeated with its key until the server confirms it; after that, a lost connection is
// taken up again with GET events.

import { ConnectionError } from "../api.js";
import { backOff, onWake } from "../connection.js";
import { serverEvents } from "../sse.js";
import { request } from "./api.js";
import { setLost } from "./frame.js";

/** @typedef {(event: string, data: any) => void} Listener */

/**
 * @param {Response} response
 * @param {AbortSignal} signal
 * @param {number} replies how many there will be
 * @param {Listener} listener
 */
async function listen(response, signal, replies, listener) {
  setLost(false);
  let ended = 0;
  for await (const { event, data } of serverEvents(response)) {
    signal.throwIfAborted();
    listener(event, data);
    if (event === "done") ended += 1;
    if (ended === replies || event === "error") return;
  }
  throw new ConnectionError("stream ended early");
}

/**
 * @param {string} assignment
 * @param {{text: string, key: string} | null} message null if the reply is already pending
 * @param {number} replies 1, or 2 side by side
 * @param {AbortSignal} signal
 * @param {Listener} listener
 */
export async function follow(assignment, message, replies, signal, listener) {
  let confirmed = message === null;
  const hear = (/** @type {string} */ event, /** @type {any} */ data) => {
    confirmed ||= event === "user" || event === "start";
    listener(event, data);
  };
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    const connection = new AbortController();
    const unsubscribe = onWake(() => connection.abort());
    const either = AbortSignal.any([signal, connection.signal]);
    try {
      const response = confirmed
        ? await request("GET", `events?assignment=${assignment}`, undefined, either)
        : await request("POST", "say", { assignment, ...message, stream: true }, either);
      return await listen(response, either, replies, hear);
    } catch (error) {
      if (signal.aborted) return undefined;
      if (connection.signal.aborted) continue;
      if (!(error instanceof ConnectionError)) throw error;
      setLost(true);
      await backOff(attempt, signal);
    } finally {
      unsubscribe();
      connection.abort();
    }
  }
  return undefined;
}
