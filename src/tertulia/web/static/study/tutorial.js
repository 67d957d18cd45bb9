// The tutorial: its pages, and the instructions as the last one.

import { h } from "../dom.js";
import { post } from "./api.js";
import { button, buttons, exclusive, prose, showError, showStep } from "./frame.js";
import { setKeys } from "./keys.js";
import { apply, t } from "./session.js";

const pageFromAddress = () => Number(/^#page-(\d+)$/.exec(location.hash)?.[1] ?? 1) - 1;

/** @param {any} now @param {number} [at] the address keeps the page for a reload */
export function showTutorial(now, at = pageFromAddress()) {
  const pages = [...now.tutorial, ...(now.instructions ? [now.instructions] : [])];
  const index = Math.max(0, Math.min(at, pages.length - 1));
  const last = index === pages.length - 1;
  history.replaceState(null, "", `#page-${index + 1}`);
  const finish = exclusive(async () => {
    history.replaceState(null, "", location.pathname);
    apply(await post("tutorial"));
  });
  const next = () => (last ? finish().catch(showError) : showTutorial(now, index + 1));
  showStep(
    h(
      "div",
      { class: "column" },
      h("h1", {}, t("heading.tutorial")),
      h("p", { class: "fine" }, t("progress.position", { number: index + 1, total: pages.length })),
      h("div", { class: "card large" }, prose(pages[index])),
      buttons(
        index > 0 && button("back", t("button.back"), () => showTutorial(now, index - 1)),
        button("next", t(last ? "button.start" : "button.next"), next, "strong"),
      ),
    ),
  );
  setKeys({ submit: next });
}
