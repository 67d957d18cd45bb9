// Judging a fixed item: what there is to read on one side, the questions on the other.

import { h } from "../dom.js";
import { showStep } from "./frame.js";
import { card, conversationCards, documentCard, instructions, personaList } from "./material.js";
import { responseCards, transcript } from "./material.js";
import { Form } from "./form.js";
import { t } from "./session.js";

/** @param {any} task */
function material(task) {
  return [
    instructions(task.instructions),
    task.evidence ? documentCard(task.evidence) : null,
    task.persona ? card(t("heading.persona"), "", personaList(task.persona)) : null,
    task.context?.length ? card(t("heading.conversation"), "context", transcript(task.context)) : null,
    task.responses ? responseCards(task.responses) : null,
    task.conversations ? conversationCards(task.conversations) : null,
  ];
}

/** @param {any} now */
export function showJudge(now) {
  const { task } = now;
  const form = new Form(task);
  form.addTargets();
  showStep(
    h(
      "div",
      { class: task.conversations?.length > 1 ? "work wide" : "work" },
      h("h1", { class: "sr" }, t("heading.work")),
      h("div", { class: "material" }, ...material(task)),
      h("div", { class: "panel" }, h("h2", { class: "sr" }, t("heading.questions")), form.element),
    ),
  );
  form.start();
}
