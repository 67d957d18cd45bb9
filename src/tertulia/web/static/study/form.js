// The questions of an assignment about its unit, sides and sentences, and the button that submits it.

import { h, icon } from "../dom.js";
import { newKey } from "../storage.js";
import { ApiError } from "../api.js";
import { get, post } from "./api.js";
import { button, buttons, showAlert, showError, showSaved } from "./frame.js";
import { focusQuestion, setKeys } from "./keys.js";
import { Labels } from "./labels.js";
import { QuestionGroup } from "./questions.js";
import { apply, t } from "./session.js";

/** After a refusal the server's state is what counts: show it, with the reason. @param {unknown} error */
export async function reloadAfter(error) {
  if (error instanceof ApiError && error.status !== 422) apply(await get("state")); // 422: an answer to correct
  showError(error);
}

export class Form {
  /** @param {any} task */
  constructor(task, labels = new Labels(task, (error) => reloadAfter(error).catch(showError))) {
    this.task = task;
    this.labels = labels;
    /** @type {QuestionGroup[]} */
    this.groups = [];
    this.body = h("div", { class: "groups" });
    this.undoButton = button("undo", t("button.undo"), () => this.undo(), "quiet small");
    this.undoButton.prepend(icon("undo"));
    this.submitButton = button("submit", t("button.submit"), () => this.submit(), "strong");
    this.element = h("div", { class: "form" }, this.body, buttons(this.undoButton, this.submitButton));
    this.key = newKey(); // of the submission
    /** Questions elsewhere on the page that come first. @type {() => HTMLElement | null} */
    this.before = () => null;
    this.busy = false;
    this.labels.listeners.add(() => this.refresh());
  }

  /** @param {string} target @param {import("./api.js").Question[]} questions @param {string} [name] */
  group(target, questions, name) {
    const read = () => this.labels.answers(target, questions);
    const write = (/** @type {string} */ id, /** @type {any} */ value) => this.labels.set(target, id, value);
    const group = new QuestionGroup(questions, { name, read, write });
    this.groups.push(group);
    return group;
  }

  /**
   * @param {string} heading
   * @param {string} target
   * @param {import("./api.js").Question[]} questions
   * @param {string} [quote] what the questions are about
   */
  add(heading, target, questions, quote) {
    if (!questions.length) return null;
    const group = this.group(target, questions, heading);
    const title = heading ? h("h3", {}, heading) : null;
    const quoted = quote ? h("p", { class: "quote", dir: "auto" }, quote) : null;
    this.body.append(h("div", { class: "target" }, title, quoted, group.element));
    return group;
  }

  /** Add the questions of every target but turns: sentences, sides and the unit. */
  addTargets() {
    const of = (/** @type {string} */ scope) => this.task.questions.filter((/** @type {any} */ q) => q.scope === scope);
    const sentences = this.task.responses?.[0]?.sentences ?? [];
    sentences.forEach((/** @type {string} */ sentence, /** @type {number} */ i) =>
      this.add(t("label.sentence", { number: i + 1 }), `sentence:${i}`, of("sentence"), sentence),
    );
    for (const side of this.task.sides ?? []) this.add(t("label.reply_of", { side }), `side:${side}`, of("side"));
    this.add("", "unit", of("unit"));
  }

  refresh() {
    for (const group of this.groups) group.refresh();
    this.undoButton.toggleAttribute("disabled", !this.labels.canUndo);
  }

  missing() {
    const first = this.before();
    if (first) return first;
    for (const group of this.groups) {
      const open = group.missing();
      if (open) return open;
    }
    return null;
  }

  undo() {
    showAlert("");
    this.labels.undo();
  }

  submit() {
    if (document.activeElement instanceof HTMLTextAreaElement) document.activeElement.blur(); // saves what was typed
    const invalid = /** @type {HTMLElement | null} */ (this.element.querySelector("[aria-invalid=true]"));
    if (invalid) return invalid.focus();
    const missing = this.missing();
    if (missing) {
      showAlert(t("answer.missing", { question: missing.querySelector(".question-text")?.textContent ?? "" }));
      return focusQuestion(missing);
    }
    return this.send().catch((error) => reloadAfter(error).catch(showError));
  }

  async send() {
    if (this.busy) return;
    this.busy = true;
    this.submitButton.toggleAttribute("disabled", true);
    try {
      showAlert("");
      await this.labels.settled();
      const next = await post("submit", { assignment: this.task.assignment, key: this.key });
      showSaved("");
      apply(next);
    } finally {
      this.busy = false;
      this.submitButton.toggleAttribute("disabled", false);
    }
  }

  start() {
    this.refresh();
    setKeys({ submit: () => this.submit(), undo: () => this.undo(), answered: () => this.submitButton.focus() });
  }
}
