// The box for messages: counts words, warns of copying, keeps drafts, and says why a message cannot be sent yet.

import { h, icon } from "../dom.js";
import { t } from "./session.js";
import { checkText } from "./words.js";

const PREFIX = "tertulia.study.";

/** @template T @param {() => T} action @returns {T | null} storage may be blocked; the page works without it */
function guarded(action) {
  try {
    return action();
  } catch {
    return null;
  }
}
/** @param {string} name @returns {any} */
export const recall = (name) => guarded(() => JSON.parse(localStorage.getItem(PREFIX + name) ?? "null"));
/** @param {string} name @param {unknown} value null to forget it */
export const remember = (name, value) =>
  guarded(() => {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  });

export class Composer {
  /** @param {any} task @param {{send: (text: string) => void, typing: () => void}} actions */
  constructor(task, { send, typing }) {
    this.task = task;
    this.draft = `${task.assignment}.draft`;
    const [name, sends] = [t("label.message"), t("button.send")];
    const props = { id: "text", rows: 1, maxlength: 2000, dir: "auto", "aria-label": name, placeholder: name };
    this.box = /** @type {HTMLTextAreaElement} */ (h("textarea", { ...props, "aria-describedby": "composer-note" }));
    const look = { type: "submit", class: "round", id: "send", "aria-label": sends, title: sends };
    this.button = h("button", look, icon("send"));
    this.counter = h("p", { class: "count" });
    this.note = h("p", { class: "note", id: "composer-note", role: "status" });
    this.form = h("form", { class: "composer" }, this.box, this.button);
    this.element = h("div", { class: "compose" }, this.note, this.form, this.counter);
    this.submit = () => {
      const text = this.box.value.trim();
      if (text && !this.problem()) send(text);
    };
    this.form.addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    this.box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.box.addEventListener("input", () => (remember(this.draft, this.box.value || null), this.refresh(), typing()));
    this.box.value = recall(this.draft) ?? "";
    this.reason = "";
  }

  /** @param {string} text */
  fill(text) {
    this.box.value = text;
    remember(this.draft, text || null);
    this.refresh();
  }

  problem() {
    return checkText(this.box.value, this.task, this.task.own_persona ?? [], t).problem;
  }

  /** @param {string} reason why nothing can be sent now; empty if it can @param {boolean} [blocked] by questions */
  allow(reason, blocked = false) {
    this.reason = reason;
    this.element.classList.toggle("blocked", blocked);
    this.refresh();
  }

  refresh() {
    const { count, problem } = checkText(this.box.value, this.task, this.task.own_persona ?? [], t);
    const { max_words: limit } = this.task;
    this.counter.textContent = limit ? t("progress.words", { count, limit }) : "";
    const words = problem || this.reason;
    if (this.note.textContent !== words) this.note.textContent = words;
    this.note.classList.toggle("serious", Boolean(problem));
    this.box.setAttribute("aria-invalid", String(Boolean(problem)));
    this.button.toggleAttribute("disabled", !this.box.value.trim() || Boolean(problem) || Boolean(this.reason));
    const lines = this.box.value.split("\n").length + Math.floor(this.box.value.length / 60);
    this.box.rows = Math.max(1, Math.min(5, lines));
  }
}
