// What a reply could rest on, below it: its passages and, where the server checks replies, which sentences they support.
// Each sentence of the reply gets a symbol with a name for screen readers, and the words that the evidence lacks are
// underlined: nothing is said by colour alone. All texts are text nodes, whoever wrote them.

import * as api from "./api.js";
import { $, h } from "./dom.js";
import { passageCount } from "./evidence.js";
import { showError, state } from "./state.js";

/** @typedef {import("./api.js").Turn} Turn */
/** @typedef {import("./api.js").Verdict} Verdict */
/** @typedef {import("./api.js").Sentence} Sentence */

/** @type {Record<string, {symbol: string, name: string}>} */
const LABELS = {
  entailment: { symbol: "✓", name: "supported" },
  hallucination: { symbol: "✗", name: "not supported" },
  contradiction: { symbol: "≠", name: "contradicted" },
  "off-topic": { symbol: "↪", name: "off topic" },
  generic: { symbol: "○", name: "claims nothing" },
};
/** Closer to the end than this, the log stays there when marks make a reply longer. */
const NEAR_PX = 96;

const checks = $("room").dataset.grounding === "on";
const scroller = $("scroller");
/** By id of the turn: a finished reply never changes. @type {Map<string, Promise<api.ReplyEvidence>>} */
const loaded = new Map();
/** What to do when a panel comes into view. @type {WeakMap<Element, () => void>} */
const whenVisible = new WeakMap();

const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    whenVisible.get(target)?.();
  }
});

/** @param {Turn} turn @returns {Promise<api.ReplyEvidence>} */
function load(turn) {
  let result = loaded.get(turn.id);
  if (!result) {
    result = api.evidence(state.conversation.id ?? "", turn.id);
    result.catch(() => loaded.delete(turn.id)); // the next look tries again
    loaded.set(turn.id, result);
  }
  return result;
}

/** @param {string} label */
const symbol = (label) =>
  h(
    "span",
    { class: `mark ${label}` },
    h("span", { "aria-hidden": "true" }, LABELS[label].symbol),
    h("span", { class: "sr" }, ` (${LABELS[label].name})`),
  );

/** @param {Element} box @returns {Text[]} the text nodes of a reply, without those of remarks and buttons */
function textNodes(box) {
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement?.closest(".aside, .code-bar, .sr, .ending") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
  );
  const nodes = [];
  while (walker.nextNode()) nodes.push(/** @type {Text} */ (walker.currentNode));
  return nodes;
}

/**
 * Cut the text nodes of a reply at two positions of its text.
 * @param {Element} box
 * @param {number} start
 * @param {number} end
 * @returns {Text[]} those between the positions
 */
function cut(box, start, end) {
  const between = [];
  let position = 0;
  for (let node of textNodes(box)) {
    const { length } = node;
    const [first, last] = [Math.max(start - position, 0), Math.min(end - position, length)];
    position += length;
    if (first >= last) continue;
    if (first > 0) node = node.splitText(first);
    if (last - first < node.length) node.splitText(last - first);
    between.push(node);
  }
  return between;
}

/**
 * Mark the sentences of a reply. In formatted replies a sentence may not be found as it was written: it is in the list.
 * @param {Element} box
 * @param {Sentence[]} sentences
 */
function markSentences(box, sentences) {
  const text = textNodes(box).map((node) => node.data).join("");
  let cursor = 0;
  const found = [];
  for (const sentence of sentences) {
    const start = text.indexOf(sentence.text, cursor);
    if (start < 0) continue;
    cursor = start + sentence.text.length;
    found.push({ sentence, start });
  }
  for (const { sentence, start } of found.reverse()) { // from the end: what is inserted moves what follows it
    let end = start + sentence.text.length;
    cut(box, start, end).at(-1)?.after(symbol(sentence.label));
    for (const part of [...sentence.parts].reverse()) {
      end -= part.text.length;
      if (!part.unsupported) continue;
      for (const node of cut(box, end, end + part.text.length)) {
        const underlined = h("u", { class: "unsupported" });
        node.replaceWith(underlined);
        underlined.append(node);
      }
    }
  }
}

/** @param {Verdict} verdict @returns {{label: string, words: string}} the outcome in one line */
function outcome({ sentences }) {
  const wrong = sentences.filter(({ supported }) => !supported);
  const all = sentences.length === 1 ? "1 sentence" : `${sentences.length} sentences`;
  if (!wrong.length) {
    const claims = sentences.some(({ label }) => label === "entailment");
    if (!claims) return { label: "generic", words: `${all}: nothing that evidence would have to support` };
    return { label: "entailment", words: `${all} supported by the evidence` };
  }
  const words = wrong.flatMap(({ parts }) => parts.filter(({ unsupported }) => unsupported).map(({ text }) => text));
  const count = wrong.length === 1 ? "1 sentence" : `${wrong.length} sentences`;
  const label = wrong.find((sentence) => sentence.label === "contradiction")?.label ?? wrong[0].label;
  return { label, words: `${count} not supported${words.length ? `: ${[...new Set(words)].slice(0, 6).join(", ")}` : ""}` };
}

/** @param {Sentence} sentence */
function sentenceRow({ label, summary, parts }) {
  const words = parts.map(({ text, unsupported }) => (unsupported ? h("u", { class: "unsupported" }, text) : text));
  return h(
    "li",
    { class: "verdict" },
    h("span", { class: `verdict-name ${label}` }, `${LABELS[label].symbol} ${LABELS[label].name}`),
    h("span", { dir: "auto" }, ...words),
    !["entailment"].includes(label) && h("span", { class: "verdict-summary" }, summary),
  );
}

/** @param {api.Passage} passage */
function passageRow({ text, source, score }) {
  const facts = [source, score !== null && `score ${score.toFixed(2)}`].filter(Boolean).join(", ");
  return h("li", { class: "passage" }, h("span", { dir: "auto" }, text), h("span", { class: "passage-source" }, facts || "given with the conversation"));
}

/** @param {api.ReplyEvidence} result @returns {HTMLElement[]} */
function content({ passages, verdict }) {
  const found = h("div", {}, h("p", { class: "grounding-head" }, "Evidence"), h("ul", { "aria-label": "Evidence" }, ...passages.map(passageRow)));
  if (!verdict) return [found];
  const rows = h("ul", { "aria-label": "Sentences" }, ...verdict.sentences.map(sentenceRow));
  const by = h("p", { class: "grounding-by" }, `Checked by the classifier ${verdict.classifier}, which can be wrong.`);
  return [h("div", {}, h("p", { class: "grounding-head" }, "Sentences"), rows, by), found];
}

/** Change something in the log; a reader at its end stays there. @param {() => void} action */
function inPlace(action) {
  const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
  action();
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
}

/**
 * The panel below a reply that had evidence; nothing for others.
 * @param {Turn} turn
 * @param {HTMLElement} box with the text of the reply
 * @returns {HTMLElement | null}
 */
export function evidencePanel(turn, box) {
  if (!turn.evidence || (turn.status !== "done" && turn.status !== "stopped")) return null;
  const title = h("span", {}, `Evidence: ${passageCount(turn.evidence)}`);
  const body = h("div", { class: "grounding-body" });
  const panel = h("details", { class: "grounding", "aria-live": "off" }, h("summary", {}, title), body);
  let shown = false;
  const show = async () => {
    if (shown) return;
    shown = true;
    const result = await load(turn).catch((error) => {
      shown = false;
      throw error;
    });
    inPlace(() => {
      body.replaceChildren(...content(result));
      if (!result.verdict) return;
      const { label, words } = outcome(result.verdict);
      title.replaceChildren(h("span", { class: `verdict-symbol ${label}`, "aria-hidden": "true" }, LABELS[label].symbol), ` ${words}`);
      // What is marked was announced already: a live region would read it out again.
      panel.closest(".turn")?.setAttribute("aria-live", "off");
      markSentences(box, result.verdict.sentences);
      if (state.conversation.turns.at(-1)?.id === turn.id) $("status").textContent = words;
    });
  };
  panel.addEventListener("toggle", () => panel.open && show().catch(showError));
  if (checks) {
    whenVisible.set(panel, () => show().catch(() => {})); // opening the panel tries again, and says what is wrong
    observer.observe(panel);
  }
  return panel;
}
