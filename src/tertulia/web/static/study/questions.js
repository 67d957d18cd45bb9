// Questions as fieldsets of radio buttons (or a text box), with the questions that depend on earlier answers.

import { h, icon } from "../dom.js";
import { askedQuestions, options } from "./answers.js";
import { t } from "./session.js";

/**
 * @typedef {import("./api.js").Question} Question
 * @typedef {import("./api.js").Value} Value
 */

const TYPING_MS = 700; // a pause in typing after which a text is saved
const MANY = 11; // larger scales are a list to choose from
let counter = 0;

/** @param {Question} question @param {string} kind */
function legend(question, kind) {
  const note = question.optional ? h("span", { class: "optional" }, ` (${t("label.optional")})`) : null;
  return h(kind, { class: "question-text", dir: "auto" }, question.text, note);
}

/** @param {{value: Value, text: string, keys: string[]}} option @param {Question} question */
function face(option, question) {
  if (question.kind === "vote") return [icon(`thumb-${option.value}`), h("span", { class: "sr" }, option.text)];
  const [key] = option.keys;
  const hint = key !== option.text.toLowerCase() ? h("kbd", { "aria-hidden": "true" }, key.toUpperCase()) : null;
  return [hint, h("span", { dir: "auto" }, option.text)];
}

/** @param {Question} question @param {(value: Value) => void} answer */
function radios(question, answer) {
  const name = `question-${(counter += 1)}`;
  const list = options(question, t);
  const pills = list.map((option) => {
    const input = h("input", { type: "radio", name, onchange: () => answer(option.value) });
    input.dataset.keys = option.keys.join(" ");
    input.dataset.value = String(option.value);
    const title = question.kind === "vote" ? option.text : null;
    return h("label", { class: "pill", title }, input, ...face(option, question));
  });
  const scale = question.kind === "scale";
  const row = h("div", { class: scale ? "pills scale" : "pills" }, ...pills);
  if (!scale || !(question.low_label || question.high_label)) return [row];
  const ends = [`${question.low} = ${question.low_label}`, `${question.high} = ${question.high_label}`];
  return [row, h("p", { class: "ends" }, ...ends.map((end) => h("span", { dir: "auto" }, end)))];
}

/** @param {Question} question @param {(value: Value) => void} answer */
function menu(question, answer) {
  const numbers = options(question, t).map(({ text }) => h("option", { value: text }, text));
  const none = h("option", { value: "" }, "–");
  const select = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": question.text }, none, ...numbers));
  select.addEventListener("change", () => select.value && answer(Number(select.value)));
  return [select];
}

/**
 * @param {Question} question
 * @param {(value: Value) => void} answer
 * @param {string} name
 */
function textBox(question, answer, name) {
  const props = { rows: 2, maxlength: 5000, dir: "auto", "aria-label": name };
  const box = /** @type {HTMLTextAreaElement} */ (h("textarea", props));
  let timer = 0;
  const save = () => {
    window.clearTimeout(timer);
    if (box.value.trim() && box.getAttribute("aria-invalid") !== "true") answer(box.value.trim());
  };
  box.addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(save, TYPING_MS);
  });
  box.addEventListener("change", save);
  return [box];
}

/** @param {Question} question @param {string} group @param {(value: Value) => void} answer */
function field(question, group, answer) {
  const texts = question.kind === "text";
  const name = group ? `${question.text}: ${group}` : question.text;
  const many = question.kind === "scale" && (question.high ?? 5) - (question.low ?? 1) >= MANY;
  const controls = texts ? textBox(question, answer, name) : many ? menu(question, answer) : radios(question, answer);
  const id = `help-${(counter += 1)}`;
  const help = question.help ? h("p", { class: "help", dir: "auto", id }, question.help) : null;
  const props = { class: "question", "data-question": question.id, "aria-describedby": help?.id };
  return h("fieldset", props, legend(question, "legend"), help, ...controls);
}

/** @param {HTMLElement} element @param {Value | undefined} value */
function showValue(element, value) {
  for (const input of element.querySelectorAll("input")) input.checked = input.dataset.value === String(value);
  const box = element.querySelector("textarea, select");
  if (box instanceof HTMLSelectElement) box.value = String(value ?? "");
  // What is being typed is newer than what was saved.
  if (box instanceof HTMLTextAreaElement && box !== document.activeElement) box.value = String(value ?? box.value);
}

export class QuestionGroup {
  /**
   * The questions about one target.
   * @param {Question[]} questions
   * @param {{name?: string, read: () => Record<string, Value>, write: (question: string, value: Value) => void}} source
   */
  constructor(questions, { name = "", read, write }) {
    this.questions = questions;
    this.read = read;
    this.fields = new Map(questions.map((q) => [q.id, field(q, name, (value) => write(q.id, value))]));
    this.element = h("div", { class: "questions" }, ...this.fields.values());
    this.refresh();
  }

  /** Show the answers, and the questions that they lead to. */
  refresh() {
    const answers = this.read();
    const asked = new Set(askedQuestions(this.questions, answers).map(({ id }) => id));
    for (const [id, element] of this.fields) {
      element.hidden = !asked.has(id);
      showValue(element, answers[id]);
    }
  }

  /** The fieldset of the first required question without an answer; null if all have one. */
  missing() {
    const answers = this.read();
    const open = askedQuestions(this.questions, answers).find((q) => !q.optional && answers[q.id] === undefined);
    return open ? this.fields.get(open.id) ?? null : null;
  }

  /** The texts of the answers, for a summary. */
  summary() {
    const answers = this.read();
    return askedQuestions(this.questions, answers).flatMap((question) => {
      const option = options(question, t).find(({ value }) => value === answers[question.id]);
      return option ? [{ question: question.text, answer: option.text }] : [];
    });
  }
}

/** One question whose answer stays here until it is sent. @param {Question} question */
export function singleQuestion(question) {
  /** @type {Record<string, Value>} */
  const answers = {};
  const write = (/** @type {string} */ id, /** @type {Value} */ value) => {
    answers[id] = value;
    group.refresh();
  };
  const group = new QuestionGroup([question], { read: () => answers, write });
  return { group, answer: () => answers[question.id] };
}
