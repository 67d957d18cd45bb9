// What there is to read: instructions, conversations, responses, documents and personas.

import { h } from "../dom.js";
import { prose } from "./frame.js";
import { t } from "./session.js";

const JUDGED = "2"; // the number of the speaker to judge, as the server gives it

/** @param {string} heading @param {string} className @param {...(Node | null)} content */
export function card(heading, className, ...content) {
  return h("section", { class: `card ${className}` }, h("h2", {}, heading), ...content);
}

/** @param {string} text @param {boolean} [open] */
export function instructions(text, open = false) {
  if (!text) return null;
  return h("details", { class: "card instructions", open }, h("summary", {}, t("heading.instructions")), prose(text));
}

/** @param {{speaker: string, text: string}} turn @param {boolean} marked whether one speaker is to be judged */
function line(turn, marked) {
  const judged = marked && turn.speaker === JUDGED;
  const name = judged ? t("label.judged_speaker") : t("label.speaker", { number: turn.speaker });
  return h(
    "li",
    { class: `line${turn.speaker === JUDGED ? " second" : ""}${judged ? " judged" : ""}` },
    h("span", { class: "speaker" }, name),
    h("p", { class: "bubble", dir: "auto" }, turn.text),
  );
}

/** @param {{speaker: string, text: string}[]} turns @param {boolean} [marked] */
export function transcript(turns, marked = false) {
  return h("ol", { class: "transcript" }, ...turns.map((turn) => line(turn, marked)));
}

/** @param {string[]} sentences */
export function personaList(sentences) {
  return h("ul", { class: "persona" }, ...sentences.map((sentence) => h("li", { dir: "auto" }, sentence)));
}

/** @param {string} text */
export const documentCard = (text) => card(t("heading.evidence"), "evidence", prose(text));

/** @param {{side: string, text: string}[]} responses */
export function responseCards(responses) {
  const paired = responses.length > 1;
  const cards = responses.map(({ side, text }) => {
    const heading = paired ? t("label.reply_of", { side }) : t("label.response_to_judge");
    return card(heading, `response side-${side}`, h("p", { class: "judged-text", dir: "auto" }, text));
  });
  return h("div", { class: paired ? "pair" : "single" }, ...cards);
}

/** @param {{side: string, turns: any[]}[]} conversations */
export function conversationCards(conversations) {
  const paired = conversations.length > 1;
  const cards = conversations.map(({ side, turns }) => {
    const heading = paired ? t("label.conversation_of", { side }) : t("heading.conversation");
    return card(heading, "conversation", transcript(turns, true));
  });
  return h("div", { class: paired ? "pair" : "single" }, ...cards);
}

/** @param {{side: string, sentences: string[]}[]} personas */
export function personaCards(personas) {
  const name = (/** @type {string} */ side) => t("label.persona_of", { side });
  const cards = personas.map(({ side, sentences }) => card(name(side), "", personaList(sentences)));
  return h("div", { class: "pair" }, ...cards);
}
