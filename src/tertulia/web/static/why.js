// "Why this reply?": candidates with their scores and why each was dropped, settings, seed and timing. Where the server does
// not explain replies, there is no button, and the server has nothing to show.

import * as api from "./api.js";
import { $, h, tool } from "./dom.js";
import { botName, showError, state } from "./state.js";

const panel = $("why");
const narrow = window.matchMedia("(max-width: 64rem)");
/** @type {HTMLElement | null} */
let opener = null;

export const explains = $("room").dataset.explain === "on";

/** @param {number | null} score */
const scoreText = (score) => (score === null ? "–" : Number(score.toPrecision(4)).toString());

/** @param {any} value */
const valueText = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** @param {Record<string, any>} values @returns {HTMLElement} */
function facts(values) {
  const rows = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return h("dl", { class: "facts" }, ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, valueText(value)))));
}

/** @param {api.Candidate} candidate @param {boolean} used */
function candidateRow(candidate, used) {
  const verdict = used ? "used" : candidate.dropped ? `dropped: ${candidate.dropped}` : "scored lower";
  return h(
    "li",
    { class: used ? "candidate used" : candidate.dropped ? "candidate dropped" : "candidate" },
    h("span", { class: "candidate-text", dir: "auto" }, candidate.text),
    h("span", { class: "candidate-facts" }, h("span", { class: "score" }, scoreText(candidate.score)), verdict),
    candidate.source && h("span", { class: "candidate-source" }, `from ${candidate.source}`),
    candidate.note && h("span", { class: "candidate-source" }, candidate.note),
  );
}

/** @param {api.Explanation} why @returns {HTMLElement[]} */
function content(why) {
  const usedIndex = why.candidates.findIndex(({ text, dropped }) => !dropped && text === why.text);
  const candidates = why.candidates.map((candidate, index) => candidateRow(candidate, index === usedIndex));
  const usage = why.usage ? `${why.usage.prompt} prompt, ${why.usage.completion} reply` : null;
  const seconds = why.seconds === null ? null : `${why.seconds.toFixed(3)} s`;
  return [
    h("p", { class: "why-reply", dir: "auto" }, why.text || "(no text)"),
    why.note && h("p", { class: "hint" }, why.note),
    h("h3", {}, `Candidates (${candidates.length})`),
    candidates.length
      ? h("ol", { class: "candidates" }, ...candidates)
      : h("p", { class: "hint" }, "This bot generates one reply and considers no others."),
    h("h3", {}, "Reply"),
    facts({
      Bot: botName(why.bot),
      Score: why.score === null ? null : scoreText(why.score),
      Attempt: why.attempt,
      Time: seconds,
      Finish: why.finish,
      Tokens: usage,
      Redraws: why.redraws || null,
      Seed: why.seed,
      Checkpoint: why.checkpoint,
      Version: why.version,
    }),
    Object.keys(why.settings).length > 0 && h("h3", {}, "Settings"),
    Object.keys(why.settings).length > 0 && facts(why.settings),
  ].filter((node) => node instanceof HTMLElement);
}

/** @param {import("./api.js").Turn} turn */
async function show(turn) {
  const why = await api.why(state.conversation.id ?? "", turn.id);
  opener = /** @type {HTMLElement | null} */ (document.activeElement);
  $("why-body").replaceChildren(...content(why));
  if (panel.open) panel.close();
  // Beside the conversation where there is room, else over it.
  if (narrow.matches) panel.showModal();
  else panel.show();
  $("why-close").focus();
}

/** Close the panel. */
export function closeWhy() {
  if (panel.open) panel.close();
}

/** @param {import("./api.js").Turn} turn @returns {HTMLElement | false} */
export const whyTool = (turn) => explains && tool("Why this reply?", "why", () => show(turn).catch(showError));

/** Connect the panel. */
export function startWhy() {
  $("why-close").addEventListener("click", closeWhy);
  panel.addEventListener("close", () => opener?.isConnected && opener.focus());
  panel.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    closeWhy();
  });
}
