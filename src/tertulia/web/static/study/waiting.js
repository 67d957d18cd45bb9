// The waiting room: a countdown until a partner comes or the time is over.

import { h } from "../dom.js";
import { post } from "./api.js";
import { reloadAfter } from "./form.js";
import { showError, showStep } from "./frame.js";
import { apply, t, version } from "./session.js";

const POLL_MS = 1500;
let timer = 0;

/** @param {number} seconds */
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

export function leaveWaiting() {
  window.clearInterval(timer);
}

/** @param {any} now */
export function showWaiting(now) {
  leaveWaiting();
  const { seconds = 0, of = 180 } = now.waiting ?? {};
  const started = performance.now() - seconds * 1000;
  const left = () => Math.max(0, of - (performance.now() - started) / 1000);
  const time = h("p", { class: "countdown", role: "timer", "aria-label": t("waiting.left") }, clock(left()));
  const props = { max: of, value: of - left(), "aria-label": t("heading.waiting") };
  const bar = /** @type {HTMLProgressElement} */ (h("progress", props));
  const minutes = Math.max(1, Math.ceil(of / 60));
  showStep(
    h(
      "div",
      { class: "column ending" },
      h("h1", {}, t("heading.waiting")),
      h("p", {}, t("waiting.text", { minutes })),
      h("div", { class: "card code-card" }, time, bar),
    ),
  );
  let polled = -POLL_MS;
  timer = window.setInterval(() => {
    time.textContent = clock(left());
    bar.value = of - left();
    if (performance.now() - polled < POLL_MS) return;
    polled = performance.now() + 60_000; // not again before this one is answered
    poll().catch(reloadAfter).catch(showError).finally(() => (polled = performance.now()));
  }, 250);
}

/** Say that we are still here, and see whether somebody has come. */
async function poll() {
  const before = version();
  const next = await post("join");
  if (version() === before && next.step !== "waiting") apply(next);
}
