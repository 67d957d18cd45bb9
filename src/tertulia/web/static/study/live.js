// A chat with another participant: their turns, whether they are typing, and whether they are there.

import { ConnectionError } from "../api.js";
import { backOff, onWake } from "../connection.js";
import { serverEvents } from "../sse.js";
import { post, request } from "./api.js";
import { setLost, showAlert, showError } from "./frame.js";
import { t } from "./session.js";

const TYPING_EVERY_MS = 2000;
const TYPING_SHOWN_MS = 4000;

export class Live {
  /**
   * @param {any} task
   * @param {{presence: HTMLElement, reload: () => Promise<void>, knows: (turn: string) => boolean}} chat
   */
  constructor(task, chat) {
    this.assignment = task.assignment;
    this.chat = chat;
    this.leaving = new AbortController();
    this.told = -TYPING_EVERY_MS;
    this.timer = 0;
  }

  start() {
    this.listen().catch(showError);
  }

  stop() {
    this.leaving.abort();
    window.clearTimeout(this.timer);
  }

  /** Tell the partner that we are typing, now and then. */
  typing() {
    if (performance.now() - this.told < TYPING_EVERY_MS) return;
    this.told = performance.now();
    post("typing").catch(() => {}); // nobody misses it
  }

  /** A message was sent: what is typed next is news again. */
  sent() {
    this.told = -TYPING_EVERY_MS;
  }

  /** @param {string} text @param {number} [forMs] */
  show(text, forMs = 0) {
    window.clearTimeout(this.timer);
    if (this.chat.presence.textContent !== text) this.chat.presence.textContent = text;
    if (forMs) this.timer = window.setTimeout(() => this.show(""), forMs);
  }

  /** @param {string} event @param {any} data */
  async handle(event, data) {
    if (event === "typing") return this.show(t("chat.typing"), TYPING_SHOWN_MS);
    if (event === "turn" && this.chat.knows(data.id)) return undefined; // the stream begins with all of them
    if (event === "turn" && data.mine) return this.chat.reload(); // says nothing about the partner
    this.show(event === "partner" && data.state === "away" ? t("chat.partner_away") : "");
    if (event === "error") showAlert(t("error.bot"));
    return this.chat.reload();
  }

  async listen() {
    const { signal } = this.leaving;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const connection = new AbortController();
      const unsubscribe = onWake(() => connection.abort());
      const either = AbortSignal.any([signal, connection.signal]);
      try {
        const response = await request("GET", `live?assignment=${this.assignment}`, undefined, either);
        setLost(false);
        attempt = 0;
        await this.chat.reload(); // what happened while we were not connected
        for await (const { event, data } of serverEvents(response)) {
          if (either.aborted) break;
          await this.handle(event, data);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (!connection.signal.aborted) {
          if (!(error instanceof ConnectionError)) return await this.chat.reload();
          setLost(true);
        }
      } finally {
        unsubscribe();
        connection.abort();
      }
      await backOff(attempt, signal);
    }
  }
}
