// Reads server-sent events from a fetch (EventSource cannot POST, and hides error responses).

import { ConnectionError } from "./api.js";

/** The server sends something at least every 15 s; after this much silence the connection counts as lost. */
const TIMEOUT_MS = 40_000;

/**
 * @typedef {{event: string, data: any}} ServerEvent
 */

/**
 * One block of lines as an event; null for comments and other blocks without data.
 * @param {string} block
 * @returns {ServerEvent | null}
 */
function parse(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T>}
 */
function withTimeout(promise) {
  let timer = 0;
  const timeout = new Promise((_, fail) => {
    timer = window.setTimeout(() => fail(new ConnectionError("timeout")), TIMEOUT_MS);
  });
  return Promise.race([promise, timeout]).finally(() => window.clearTimeout(timer));
}

/**
 * The events of a response as they come. Ends with the stream; a lost connection is a ConnectionError.
 * @param {Response} response
 * @returns {AsyncGenerator<ServerEvent>}
 */
export async function* serverEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await withTimeout(reader.read());
      if (done) return;
      buffer += value;
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } catch (error) {
    throw error instanceof ConnectionError ? error : new ConnectionError(String(error));
  } finally {
    reader.cancel().catch(() => {}); // disconnect; fails harmlessly when the connection is already lost
  }
}
