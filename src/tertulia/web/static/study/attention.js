// A check of attention between two tasks: one question with one right answer.

import { h } from "../dom.js";
import { post } from "./api.js";
import { button, buttons, exclusive, showAlert, showError, showStep } from "./frame.js";
import { focusQuestion, setKeys } from "./keys.js";
import { singleQuestion } from "./questions.js";
import { apply, t } from "./session.js";

/** @param {any} now */
export function showAttention(now) {
  const { group, answer } = singleQuestion(now.attention.question);
  const submit = exclusive(async () => {
    const missing = group.missing();
    if (missing) return focusQuestion(missing);
    const { feedback, ...next } = await post("attention", { value: answer() });
    apply(next);
    return showAlert(feedback.correct ? "" : feedback.text);
  });
  const send = button("submit", t("button.submit"), submit, "strong");
  const panel = h("div", { class: "panel still" }, group.element, buttons(send));
  showStep(h("div", { class: "column" }, h("h1", {}, t("heading.attention")), panel));
  setKeys({ submit: () => submit().catch(showError), answered: () => send.focus() });
}
