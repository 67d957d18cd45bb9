// Notices above the composer: the connection is lost, or the server refused a request. A reply that failed says so itself.

import { $, h, tool } from "./dom.js";
import { change, state } from "./state.js";

/** @type {typeof state.alert} */
let shown = null;

/** Update the notices from the state; each is written once, so that it is announced once. */
export function showNotices() {
  const words = state.lost ? "Connection lost, retrying…" : "";
  if ($("lost").textContent !== words) $("lost").textContent = words;
  if (state.alert === shown) return;
  shown = state.alert;
  const alert = $("alert");
  if (!shown) {
    alert.replaceChildren();
    return;
  }
  const text = h("p", { class: "words", dir: "auto" }, shown.message);
  if (shown.hint) text.append(h("span", { class: "hint" }, shown.hint));
  const dismiss = tool("Dismiss", "close", () => {
    change({ alert: null });
    $("text").focus();
  });
  alert.replaceChildren(text, dismiss);
}
