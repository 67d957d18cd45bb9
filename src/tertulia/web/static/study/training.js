// Training: one question at a time, with an explanation after a wrong answer.

import { h } from "../dom.js";
import { post } from "./api.js";
import { button, buttons, exclusive, showAlert, showError, showStep } from "./frame.js";
import { focusQuestion, setKeys } from "./keys.js";
import { card, documentCard, instructions, responseCards } from "./material.js";
import { singleQuestion } from "./questions.js";
import { apply, t } from "./session.js";

/** @param {any} view */
function material(view) {
  const texts = /** @type {string[]} */ (view.responses ?? []);
  const responses = texts.map((text, i) => ({ side: "AB"[i], text }));
  return [
    view.evidence ? documentCard(view.evidence) : null,
    card(t("heading.conversation"), "context", h("p", { class: "lines", dir: "auto" }, view.text)),
    responses.length ? responseCards(responses) : null,
  ];
}

/**
 * After an answer: whether it was right, and on to the next state.
 * @param {any} next
 * @param {{correct: boolean, text: string}} feedback
 */
function showFeedback(next, feedback) {
  const text = feedback.correct ? feedback.text : t("training.wrong", { explanation: feedback.text });
  const proceed = () => apply(next);
  const begins = next.step === "work" || next.step === "waiting";
  const count = !feedback.correct && next.step === "training" ? next.training.attempts_left : null;
  const box = h(
    "div",
    { class: `card feedback ${feedback.correct ? "right" : "wrong"}`, role: "status" },
    h("p", { dir: "auto" }, text),
    begins && h("p", {}, t("training.passed")),
    count !== null && h("p", { class: "fine" }, t("progress.attempts", { count })),
  );
  const go = button("next", t("button.continue"), proceed, "strong");
  const panel = document.querySelector(".panel");
  panel?.querySelector(".buttons")?.remove();
  panel?.querySelectorAll("input, textarea").forEach((input) => input.toggleAttribute("disabled", true));
  panel?.append(box, buttons(go));
  go.focus();
  setKeys({ submit: proceed });
}

/** @param {any} now */
export function showTraining(now) {
  const { index, of, attempts_left: left, view, question } = now.training;
  const { group, answer } = singleQuestion({ ...question, optional: false, when: null });
  const submit = exclusive(async () => {
    const missing = group.missing();
    if (missing) return showAlert(t("answer.missing", { question: question.text })), focusQuestion(missing);
    showAlert("");
    const { feedback, ...next } = await post("training", { index, value: answer() });
    return feedback ? showFeedback(next, feedback) : apply(next);
  });
  const position = t("progress.position", { number: index + 1, total: of });
  const send = button("submit", t("button.submit"), submit, "strong");
  showStep(
    h(
      "div",
      { class: "work" },
      h("div", { class: "intro" }, h("h1", {}, t("heading.training")), h("p", {}, t("training.intro"))),
      h("div", { class: "material" }, ...material(view), instructions(now.instructions)),
      h(
        "div",
        { class: "panel" },
        h("p", { class: "fine" }, `${position} · ${t("progress.attempts", { count: left })}`),
        group.element,
        buttons(send),
      ),
    ),
  );
  setKeys({ submit: () => submit().catch(showError), answered: () => send.focus() });
}
