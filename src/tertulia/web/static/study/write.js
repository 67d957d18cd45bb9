// Writing: each sentence of a persona in other words, with a warning while the words are still the same.

import { h } from "../dom.js";
import { showStep } from "./frame.js";
import { Form } from "./form.js";
import { instructions } from "./material.js";
import { t } from "./session.js";
import { checkText } from "./words.js";

/**
 * Watch a text box: count its words and warn of copying.
 * @param {HTMLTextAreaElement} box
 * @param {string} target
 * @param {any} task
 * @param {import("./labels.js").Labels} labels
 */
function watch(box, target, task, labels) {
  const counter = h("p", { class: "count" });
  const warning = h("p", { class: "warning", role: "status" });
  const check = () => {
    const { count, problem } = checkText(box.value, task, task.persona, t);
    counter.textContent = task.max_words ? t("progress.words", { count, limit: task.max_words }) : "";
    const text = problem || labels.warnings.get(target) || "";
    if (warning.textContent !== text) warning.textContent = text;
    warning.classList.toggle("serious", Boolean(problem));
    box.setAttribute("aria-invalid", String(Boolean(problem)));
  };
  box.addEventListener("input", check);
  labels.listeners.add(check); // the server names the words that were reused
  box.after(counter, warning);
  check();
}

/** @param {any} now */
export function showWrite(now) {
  const { task } = now;
  const form = new Form(task);
  const perSentence = task.questions.filter((/** @type {any} */ q) => q.scope === "sentence");
  task.persona.forEach((/** @type {string} */ sentence, /** @type {number} */ i) => {
    const group = form.add(t("label.sentence", { number: i + 1 }), `sentence:${i}`, perSentence, sentence);
    for (const box of group?.element.querySelectorAll("textarea") ?? []) watch(box, `sentence:${i}`, task, form.labels);
  });
  form.add("", "unit", task.questions.filter((/** @type {any} */ q) => q.scope === "unit"));
  showStep(
    h(
      "div",
      { class: "column" },
      h("h1", {}, t("heading.work")),
      instructions(task.instructions, true),
      h("div", { class: "panel still" }, h("h2", { class: "sr" }, t("heading.questions")), form.element),
    ),
  );
  form.start();
}
