// The line to the server: whether it stands, and how long to wait before the next try.

import { ApiError, LinkError } from "./api.js";
import { change, state } from "./state.js";

const FIRST_MS = 400;
const LONGEST_MS = 10_000;

/** @type {Set<() => void>} */
const kicks = new Set();

/**
 * Call `listener` when the world changed such that it is worth looking at once (network back, page seen again).
 * @param {() => void} listener
 * @returns {() => void} to stop listening
 */
export function onKick(listener) {
  kicks.add(listener);
  return () => kicks.delete(listener);
}

const kick = () => [...kicks].forEach((listener) => listener());
window.addEventListener("online", kick);
// A phone that slept keeps dead connections that look alive.
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && kick());

/** @param {boolean} lost */
export function mark(lost) {
  if (state.lost !== lost) change({ lost });
}

/**
 * Wait before try number `attempt` (from 0): twice as long each time, at most 10 s, cut short by a kick.
 * @param {number} attempt
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function pause(attempt, signal) {
  const longest = Math.min(LONGEST_MS, FIRST_MS * 2 ** attempt);
  return new Promise((resolve) => {
    const over = () => {
      window.clearTimeout(timer);
      forget();
      signal.removeEventListener("abort", over);
      resolve();
    };
    // A little chance, so that a server that comes back is not met by all its pages in the same instant.
    const timer = window.setTimeout(over, longest * (0.75 + Math.random() / 4));
    const forget = onKick(over);
    signal.addEventListener("abort", over);
  });
}

/**
 * Do something until the server was reached. Its refusals are passed on.
 * @template T
 * @param {() => Promise<T>} action
 * @param {AbortSignal} signal
 * @returns {Promise<T>}
 */
export async function untilReached(action, signal) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const result = await action();
      mark(false);
      return result;
    } catch (error) {
      if (error instanceof ApiError) mark(false);
      if (!(error instanceof LinkError) || signal.aborted) throw error;
      mark(true);
      await pause(attempt, signal);
      signal.throwIfAborted();
    }
  }
}
