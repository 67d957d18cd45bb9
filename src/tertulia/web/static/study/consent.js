// Consent: the text, a box to tick, and a button; or a word of thanks for those who decline.

import { h } from "../dom.js";
import { post } from "./api.js";
import { button, buttons, prose, showAlert, showStep } from "./frame.js";
import { apply, t } from "./session.js";

function decline() {
  showStep(
    h(
      "div",
      { class: "column" },
      h("h1", {}, t("heading.declined")),
      h("p", {}, t("consent.declined")),
      buttons(button("back", t("button.back"), () => location.reload())),
    ),
  );
}

/** @param {any} now */
export function showConsent(now) {
  const { version, text } = now.consent;
  const tick = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: "tick" }));
  const agree = async () => {
    if (!tick.checked) {
      showAlert(t("consent.needed"));
      return tick.focus();
    }
    showAlert("");
    return apply(await post("consent", { version, language: now.language }));
  };
  const declines = button("decline", t("button.decline"), decline, "quiet");
  const agrees = button("agree", t("button.agree"), agree, "strong");
  const preview = h("p", { class: "card caution" }, t("consent.preview"));
  const choice = [h("label", { class: "tick" }, tick, h("span", {}, t("consent.tick"))), buttons(declines, agrees)];
  showStep(
    h(
      "div",
      { class: "column" },
      h("h1", {}, t("heading.consent")),
      h("div", { class: "card" }, prose(text), h("p", { class: "fine" }, t("consent.version", { version }))),
      h("p", {}, t("consent.withdraw_any_time")),
      ...(now.preview ? [preview] : choice),
    ),
  );
}
