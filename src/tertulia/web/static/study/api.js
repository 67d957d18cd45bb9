// The study's API. Every request is repeated until the server is reached; keys make the repeats harmless.

import { ApiError, ConnectionError } from "../api.js";
import { backOff } from "../connection.js";
import { setLost } from "./frame.js";

/**
 * @typedef {boolean | number | string} Value
 * @typedef {{target: string, question: string, value: Value}} Label
 * @typedef {{id: string, scope: "turn" | "unit" | "side" | "sentence", kind: string, text: string, help: string,
 *   optional: boolean, when: Record<string, Value[]> | null, otherwise: Value | null, low?: number, high?: number,
 *   low_label?: string, high_label?: string, choices?: {value: string, text: string}[]}} Question
 */

const SITE = new URL("../../", import.meta.url);
const STUDY = /\/study\/([^/]+)/.exec(location.pathname)?.[1] ?? "";
const PATIENCE = 5; // how often a request is repeated that the server is too busy for

/** @param {Response} response @returns {Promise<Error>} */
async function errorFrom(response) {
  const body = await response.json().catch(() => null);
  if (body?.error?.message) return new ApiError(response.status, body.error.message, body.error.hint ?? "");
  if (response.status >= 500) return new ConnectionError(`status ${response.status}`); // a proxy without our server
  return new ApiError(response.status, "", "");
}

/**
 * One request, tried once.
 * @param {"GET" | "POST"} method
 * @param {string} path below /api/study/{study}/
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
export async function request(method, path, body, signal) {
  const headers = { "content-type": "application/json" };
  const sent = body === undefined ? {} : { headers, body: JSON.stringify(body) };
  let response;
  try {
    const address = new URL(`api/study/${STUDY}/${path}`, SITE);
    response = await fetch(address, { method, signal, cache: "no-store", credentials: "same-origin", ...sent });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ConnectionError(String(error));
  }
  if (!response.ok) throw await errorFrom(response);
  return response;
}

/** @param {unknown} error @param {number} attempt */
const worthRepeating = (error, attempt) =>
  error instanceof ConnectionError ||
  (error instanceof ApiError && (error.status === 429 || error.status === 503) && attempt < PATIENCE);

/** @param {"GET" | "POST"} method @param {string} path @param {unknown} [body] */
async function json(method, path, body) {
  const never = new AbortController().signal;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const response = await request(method, path, body);
      const result = await response.json().catch((error) => {
        throw new ConnectionError(String(error)); // the response was cut off
      });
      setLost(false);
      return result;
    } catch (error) {
      if (!worthRepeating(error, attempt)) {
        setLost(false);
        throw error;
      }
      setLost(true);
      await backOff(attempt, never);
    }
  }
}

/** @param {string} path */
export const get = (path) => json("GET", path);
/** @param {string} path @param {Record<string, unknown>} [body] */
export const post = (path, body = {}) => json("POST", path, body);
