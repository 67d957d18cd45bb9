// The labels of one assignment. Each answer is sent at once, one request at a time, and counts as saved when the server
// has said so; a lost connection repeats it with the same key.

import { newKey } from "../storage.js";
import * as api from "./api.js";
import { showSaved } from "./frame.js";

/** @typedef {import("./api.js").Value} Value */

const slot = (/** @type {string} */ target, /** @type {string} */ question) => `${target} ${question}`;

export class Labels {
  /**
   * @param {{assignment: string, labels?: import("./api.js").Label[], undo_key?: string | null}} task
   * @param {(error: unknown) => void} refused called when the server does not accept a label
   */
  constructor(task, refused) {
    this.assignment = task.assignment;
    this.refused = refused;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    /** @type {Promise<void>} */
    this.queue = Promise.resolve();
    this.waiting = 0;
    this.changes = 0; // answers given and saved so far: what was read before the last of them is old
    /** Warnings about texts, by target. @type {Map<string, string>} */
    this.warnings = new Map();
    this.since = performance.now();
    this.take(task);
  }

  /** Replace everything by what the server has. @param {{labels?: any[], undo_key?: string | null}} answer */
  take({ labels = [], undo_key: undoKey = null }) {
    /** @type {Map<string, Value>} */
    this.values = new Map(labels.map(({ target, question, value }) => [slot(target, question), value]));
    this.undoKey = undoKey; // of the last answer
  }

  get canUndo() {
    return this.undoKey !== null || this.waiting > 0;
  }

  /** @param {string} target @param {{id: string}[]} questions @returns {Record<string, Value>} */
  answers(target, questions) {
    const pairs = questions.map(({ id }) => [id, this.values.get(slot(target, id))]);
    return Object.fromEntries(pairs.filter(([, value]) => value !== undefined));
  }

  /** @param {string} target @param {string} question @param {Value} value */
  set(target, question, value) {
    if (this.values.get(slot(target, question)) === value) return;
    this.values.set(slot(target, question), value);
    const seconds = Math.round(performance.now() - this.since) / 1000;
    this.since = performance.now();
    const labels = [{ target, question, value }];
    const body = { assignment: this.assignment, key: newKey(), labels, seconds };
    this.send("labels", () => body);
    this.changed();
  }

  /** Take the last answer back. */
  undo() {
    if (this.canUndo) this.send("undo", () => this.undoKey && { assignment: this.assignment, key: this.undoKey });
  }

  /** @param {string} path @param {() => any} body known when all before it has been saved; empty to send nothing */
  send(path, body) {
    this.waiting += 1;
    this.changes += 1;
    showSaved("saving");
    this.queue = this.queue.then(async () => {
      const sent = body();
      try {
        const answer = sent ? await api.post(path, sent) : null;
        this.waiting -= 1;
        this.changes += 1;
        this.undoKey = answer?.undo_key ?? null;
        if (this.waiting > 0) return; // what the page shows is newer than this answer
        if (answer) this.take(answer);
        for (const { target } of sent?.labels ?? []) this.warnings.delete(target);
        for (const { target, text } of answer?.warnings ?? []) this.warnings.set(target, text);
        showSaved("saved");
        this.changed();
      } catch (error) {
        this.waiting -= 1;
        showSaved("");
        for (const { target, question } of sent?.labels ?? []) this.values.delete(slot(target, question));
        this.refused(error);
      }
    });
  }

  /** Resolves when nothing is left to be saved. */
  async settled() {
    while (this.waiting > 0) await this.queue;
  }

  changed() {
    for (const listener of this.listeners) listener();
  }
}
