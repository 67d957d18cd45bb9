// How it ends: thanks, and the completion code with a button to copy it.

import { h } from "../dom.js";
import { button, buttons, showStep } from "./frame.js";
import { t } from "./session.js";

const HEADINGS = /** @type {Record<string, string>} */ ({
  done: "done",
  screened_out: "screened_out",
  withdrawn: "withdrawn",
  closed: "closed",
  timed_out: "done",
  partner_left: "done",
});
const MESSAGES = /** @type {Record<string, string>} */ ({
  done: "done.text",
  screened_out: "done.screened_out",
  withdrawn: "withdraw.done",
  closed: "done.closed",
  timed_out: "waiting.timed_out",
  partner_left: "chat.partner_left",
});

/** @param {HTMLElement} code @param {HTMLElement} copies the button */
async function copy(code, copies) {
  try {
    await navigator.clipboard.writeText(code.textContent ?? "");
  } catch {
    // Without permission, or on plain http: select it, so that the participant can copy it.
    getSelection()?.selectAllChildren(code);
    if (!document.execCommand("copy")) return;
  }
  copies.textContent = t("button.copied");
}

/** @param {string} code */
function codeBox(code) {
  const text = h("output", { class: "code", id: "code", "aria-label": t("done.code") }, code);
  const copies = button("copy", t("button.copy_code"), () => copy(text, copies), "strong");
  copies.setAttribute("aria-live", "polite");
  return h("div", { class: "card code-card" }, h("p", {}, t("done.code")), text, buttons(copies));
}

/** @param {any} now */
export function showEnding(now) {
  showStep(
    h(
      "div",
      { class: "column ending" },
      h("h1", {}, t(`heading.${HEADINGS[now.step] ?? "closed"}`)),
      h("p", { dir: "auto" }, now.message || t(MESSAGES[now.step] ?? "done.closed")),
      now.code ? codeBox(now.code) : null,
    ),
  );
}
