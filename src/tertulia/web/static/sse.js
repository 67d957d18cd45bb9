// Server-sent events read from a fetch (EventSource can neither POST nor tell a refusal from a lost line).

import { LinkError } from "./api.js";

/** The server says something at least every 15 s; this long a silence means that nobody is there any more. */
const SILENCE_MS = 40_000;

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
function orSilence(promise) {
  let timer = 0;
  const silence = new Promise((_, fail) => {
    timer = window.setTimeout(() => fail(new LinkError("silence")), SILENCE_MS);
  });
  return Promise.race([promise, silence]).finally(() => window.clearTimeout(timer));
}

/**
 * The events of a response as they come. Ends with the stream; a torn line is a LinkError.
 * @param {Response} response
 * @returns {AsyncGenerator<ServerEvent>}
 */
export async function* serverEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await orSilence(reader.read());
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
    throw error instanceof LinkError ? error : new LinkError(String(error));
  } finally {
    reader.cancel().catch(() => {}); // hang up; on a line that is already dead this fails, and that is fine
  }
}
