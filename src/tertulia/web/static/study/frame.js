// What surrounds every step: title, progress, the saved mark, notices, language, theme, withdrawal and shortcuts.

import { $, h, icon, tool } from "../dom.js";
import { ApiError, ConnectionError } from "../api.js";
import { state, t } from "./session.js";

const NOTHING_TO_WITHDRAW = new Set(["withdrawn", "closed"]);
const SHORTCUTS = ["numbers", "yes_no", "sides", "next", "previous", "submit", "undo", "send", "help"];
let lost = false;

/** @param {boolean} isLost whether the connection to the server is lost */
export function setLost(isLost) {
  if (lost === isLost) return;
  lost = isLost;
  $("lost").textContent = lost && state() ? t("error.network") : "";
}

/** @param {"saving" | "saved" | ""} word "saved" only after the server has said so */
export function showSaved(word) {
  const text = word && t(`progress.${word}`);
  if ($("saved").textContent !== text) $("saved").textContent = text;
  $("saved").dataset.state = word;
}

/** @param {string} message @param {string} [hint] empty to clear */
export function showAlert(message, hint = "") {
  if (!message) return $("alert").replaceChildren();
  const words = h("p", { class: "words", dir: "auto" }, message);
  if (hint) words.append(" ", h("span", { class: "hint" }, hint));
  const dismiss = tool(t("button.close"), "close", () => (showAlert(""), $("main").focus()));
  $("alert").replaceChildren(words, dismiss);
  $("alert").scrollIntoView({ block: "nearest" });
}

/** @param {unknown} error */
export function showError(error) {
  if (error instanceof ApiError) return showAlert(error.message || t("error.general"), error.hint);
  if (!(error instanceof ConnectionError)) console.error(error);
  return showAlert(t("error.general"));
}

/** @param {string} code */
function languageName(code) {
  const name = new Intl.DisplayNames([code], { type: "language" }).of(code) ?? code;
  return name.charAt(0).toLocaleUpperCase(code) + name.slice(1);
}

/** @param {any} now */
function showLanguages(now) {
  const languages = now.languages ?? [];
  $("language-name").textContent = t("label.language");
  $("language-field").hidden = languages.length < 2 || Boolean(now.preview);
  const options = languages.map((/** @type {string} */ code) =>
    h("option", { value: code, lang: code, selected: code === now.language }, languageName(code)),
  );
  $("language").replaceChildren(...options);
}

/** @param {any} now */
function showProgress(now) {
  const { done = 0, of = null } = now.progress ?? {};
  const working = (now.step === "work" || now.step === "waiting") && of;
  $("progress").hidden = !working;
  if (!working) return;
  $("progress-text").textContent = t("progress.position", { number: Math.min(done + 1, of), total: of });
  $("progress-bar").value = done / of;
}

/** @param {HTMLElement} button @param {string} name */
function setName(button, name) {
  button.setAttribute("aria-label", name);
  button.title = name;
}

function showTheme() {
  const next = window.tertuliaTheme.current() === "dark" ? "light" : "dark";
  $("theme").replaceChildren(icon(next === "dark" ? "moon" : "sun"));
  setName($("theme"), t(`button.theme_${next}`));
}

/** Write the frame's texts for a state. @param {any} now */
export function showFrame(now) {
  document.documentElement.lang = now.language;
  document.documentElement.dir = now.direction ?? now.dir ?? "ltr";
  document.title = now.title;
  $("study-title").textContent = now.title;
  $("skip").textContent = t("button.skip_to_content");
  $("foot").hidden = NOTHING_TO_WITHDRAW.has(now.step) || Boolean(now.preview);
  $("withdraw").textContent = t("button.withdraw");
  $("withdraw-title").textContent = t("heading.withdraw");
  $("withdraw-text").textContent = t("withdraw.text");
  $("withdraw-ok").textContent = t("button.withdraw_confirm");
  $("withdraw-cancel").textContent = t("button.cancel");
  $("keys-title").textContent = t("heading.shortcuts");
  $("keys-close").textContent = t("button.close");
  $("keys-list").replaceChildren(...SHORTCUTS.map(shortcut));
  setName($("shortcuts"), t("button.shortcuts"));
  showTheme();
  showLanguages(now);
  showProgress(now);
}

/** "j: next question" as a key and its meaning. @param {string} name */
function shortcut(name) {
  const [keys, ...meaning] = t(`shortcut.${name}`).split(": ");
  return h("li", {}, h("kbd", {}, keys), h("span", {}, meaning.join(": ")));
}

export const openShortcuts = () => $("keys-dialog").showModal();

/** @returns {Promise<boolean>} whether the participant confirms */
function confirmWithdrawal() {
  const dialog = $("withdraw-dialog");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}

/** @param {{chooseLanguage: (code: string) => Promise<void>, withdraw: () => Promise<void>}} actions */
export function startFrame({ chooseLanguage, withdraw }) {
  $("language").addEventListener("change", () => chooseLanguage($("language").value).catch(showError));
  $("theme").addEventListener("click", () => (window.tertuliaTheme.toggle(), showTheme()));
  $("shortcuts").addEventListener("click", openShortcuts);
  $("withdraw").addEventListener("click", async () => {
    if (await confirmWithdrawal()) withdraw().catch(showError);
  });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close(""));
  }
  window.tertuliaTheme.watch(showTheme);
}

/**
 * Put a step's content into the page; its heading gets the focus, so that screen readers start there.
 * @param {...(Node | null | false)} content the first heading of it is the page's
 */
export function showStep(...content) {
  $("main").replaceChildren(...content.filter((part) => part instanceof Node));
  const heading = $("main").querySelector("h1");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/**
 * An action that is ignored while it is under way: a double click, or Enter twice, is meant once.
 * @template {any[]} A
 * @param {(...given: A) => unknown} action
 * @returns {(...given: A) => Promise<unknown>}
 */
export function exclusive(action) {
  let running = false;
  return async (...given) => {
    if (running) return undefined;
    running = true;
    try {
      return await action(...given);
    } finally {
      running = false;
    }
  };
}

/**
 * A button with a text.
 * @param {string} id
 * @param {string} text
 * @param {(event: Event) => unknown} onclick what it does; a promise that fails is shown
 * @param {string} [look] more classes, such as "strong"
 * @returns {HTMLElement}
 */
export function button(id, text, onclick, look = "") {
  const act = exclusive(onclick);
  const props = { type: "button", class: `button ${look}`.trim(), id };
  return h("button", { ...props, onclick: (/** @type {Event} */ event) => act(event).catch(showError) }, text);
}

/** @param {...(Node | null | false)} content */
export const buttons = (...content) => h("div", { class: "buttons" }, ...content);

/**
 * A text of several paragraphs.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function prose(text) {
  const paragraphs = text.trim().split(/\n\s*\n/);
  return h("div", { class: "prose" }, ...paragraphs.map((paragraph) => h("p", { dir: "auto" }, paragraph)));
}
