// The connection to the server: whether it is lost, and how long to wait before the next attempt.

import { ApiError, ConnectionError } from "./api.js";
import { change, state } from "./state.js";

const FIRST_MS = 400;
const MAX_MS = 10_000;

/** @type {Set<() => void>} */
const wakeListeners = new Set();

/**
 * Call `listener` when it is worth trying again at once (network back, page visible again).
 * @param {() => void} listener
 * @returns {() => void} to stop listening
 */
export function onWake(listener) {
  wakeListeners.add(listener);
  return () => wakeListeners.delete(listener);
}

const wake = () => [...wakeListeners].forEach((listener) => listener());
window.addEventListener("online", wake);
// After a phone wakes up, dead connections may still look alive.
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wake());

/** @param {boolean} lost */
export function setLost(lost) {
  if (state.lost !== lost) change({ lost });
}

/**
 * Wait before attempt number `attempt` (from 0): twice as long each time, at most 10 s, less when woken.
 * @param {number} attempt
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function backOff(attempt, signal) {
  const delay = Math.min(MAX_MS, FIRST_MS * 2 ** attempt);
  return new Promise((resolve) => {
    const finish = () => {
      window.clearTimeout(timer);
      unsubscribe();
      signal.removeEventListener("abort", finish);
      resolve();
    };
    // Jitter, so that a server that comes back does not get all pages' requests at the same moment.
    const timer = window.setTimeout(finish, delay * (0.75 + Math.random() / 4));
    const unsubscribe = onWake(finish);
    signal.addEventListener("abort", finish);
  });
}

/**
 * Retry until the server is reached. Errors that it answers with are thrown.
 * @template T
 * @param {() => Promise<T>} action
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
export async function retryUntilReached(action, signal) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const result = await action();
      setLost(false);
      return result;
    } catch (error) {
      if (error instanceof ApiError) setLost(false);
      if (!(error instanceof ConnectionError) || signal.aborted) throw error;
      setLost(true);
      await backOff(attempt, signal);
      signal.throwIfAborted();
    }
  }
}
