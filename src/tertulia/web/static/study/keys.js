// The keyboard: an answer's number or letter, j and k (or the arrows) between questions, Enter, u, and ? for the list.

import { $ } from "../dom.js";
import { openShortcuts } from "./frame.js";

/** @type {{submit?: () => void, undo?: () => void, answered?: () => void}} */
let actions = {};

/** What the keys do in the present step. @param {typeof actions} next */
export function setKeys(next) {
  actions = next;
}

/** @returns {HTMLElement[]} the questions that are asked now */
function questions() {
  const all = /** @type {NodeListOf<HTMLElement>} */ ($("main").querySelectorAll(".question"));
  return [...all].filter((element) => element.checkVisibility());
}

/** @param {HTMLElement} question */
function control(question) {
  const chosen = question.querySelector("input:checked") ?? question.querySelector("input, textarea, select");
  return /** @type {HTMLElement | null} */ (chosen);
}

/** @param {HTMLElement} question */
const isOpen = (question) => {
  const box = /** @type {any} */ (question.querySelector("textarea, select"));
  return box ? !box.value : !question.querySelector("input:checked");
};

/** Go to a question. @param {HTMLElement | undefined | null} question */
export function focusQuestion(question) {
  if (!question) return;
  control(question)?.focus({ preventScroll: true });
  question.scrollIntoView({ block: "nearest" });
}

/** @returns {HTMLElement | undefined} the question with the focus, else the first one without an answer */
function currentQuestion() {
  const list = questions();
  const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest(".question") ?? null);
  return focused && list.includes(focused) ? focused : list.find(isOpen) ?? list.at(-1);
}

/** @param {1 | -1} by */
function move(by) {
  const list = questions();
  const focused = document.activeElement?.closest(".question");
  const at = focused ? list.indexOf(/** @type {HTMLElement} */ (focused)) + by : list.findIndex(isOpen);
  focusQuestion(list[Math.max(0, Math.min(list.length - 1, at))]);
}

/** @param {HTMLElement} question @param {string} key @returns {boolean} whether the key answers the question */
function answer(question, key) {
  const inputs = [...question.querySelectorAll("input")];
  const input = inputs.find(({ dataset }) => dataset.keys?.split(" ").includes(key));
  if (!input) return false;
  input.focus({ preventScroll: true });
  if (!input.checked) input.click();
  const list = questions(); // the answer may have led to other questions
  const rest = list.slice(list.indexOf(question) + 1).find((next) => isOpen(next) && next.querySelector("input"));
  if (rest) focusQuestion(rest);
  else actions.answered?.();
  return true;
}

/** @param {HTMLElement} target */
const typesInto = (target) => target.matches("textarea, select, input:not([type=radio], [type=checkbox])");

/** @param {KeyboardEvent} event @returns {boolean} whether the key was used */
function handle(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === "Enter" && actions.submit && !event.isComposing) {
    const confirms = typesInto(target) && (event.ctrlKey || event.metaKey);
    if (!confirms && target.matches("button, a, summary, textarea, select, input[type=checkbox]")) return false;
    actions.submit();
    return true;
  }
  if (typesInto(target) || event.ctrlKey || event.metaKey || event.altKey) return false;
  const key = event.key.toLowerCase();
  if (key === "?") return openShortcuts(), true;
  const inQuestions = target.closest(".question") !== null || target === document.body || $("main").contains(target);
  if (!inQuestions || questions().length === 0) return false;
  if (key === "j" || (event.key === "ArrowDown" && target.closest(".question"))) return move(1), true;
  if (key === "k" || (event.key === "ArrowUp" && target.closest(".question"))) return move(-1), true;
  if (key === "u" && actions.undo) return actions.undo(), true;
  const question = currentQuestion();
  return key.length === 1 && question !== undefined && answer(question, key);
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (handle(event)) event.preventDefault();
  });
}
