// The turns of a chat, with a bar of questions under each reply; two bots' replies are side by side.

import { h, icon } from "../dom.js";
import { focusQuestion } from "./keys.js";
import { QuestionGroup } from "./questions.js";
import { t } from "./session.js";

/**
 * @typedef {import("./api.js").Question} Question
 * @typedef {{id: string, side: string | null, mine: boolean, text: string, pending: boolean}} Turn
 */

const dots = () => h("span", { class: "typing", "aria-hidden": "true" }, h("i"), h("i"), h("i"));

/** @param {Turn} turn @param {boolean} paired */
function speakerName(turn, paired) {
  if (turn.mine) return t("label.you");
  return paired && turn.side ? turn.side : t("label.partner");
}

/** Set the children, unless they are the same already. @param {Element} parent @param {Element[]} children */
function setChildren(parent, children) {
  const same = children.length === parent.children.length && children.every((child, i) => child === parent.children[i]);
  if (!same) parent.replaceChildren(...children);
}

/** The questions about one reply, or about two side by side. Those of earlier replies fold into a line. */
class Bar {
  /** @param {string} target @param {Question[]} questions @param {import("./labels.js").Labels} labels */
  constructor(target, questions, labels) {
    const read = () => labels.answers(target, questions);
    this.required = questions.some(({ optional }) => !optional);
    this.group = new QuestionGroup(questions, { read, write: (id, value) => labels.set(target, id, value) });
    this.fold = h("button", { type: "button", class: "fold", onclick: () => this.open() });
    this.element = h("div", { class: this.required ? "labels required" : "labels" }, this.group.element, this.fold);
    this.opened = false;
  }

  open() {
    this.opened = true;
    this.refresh(false);
    focusQuestion(this.element.querySelector(".question"));
  }

  /** @param {boolean} latest whether it is about the last reply */
  refresh(latest) {
    this.group.refresh();
    const complete = !this.group.missing();
    const folded = this.required && complete && !latest && !this.opened;
    this.element.classList.toggle("open-question", !complete);
    this.group.element.hidden = folded;
    this.fold.hidden = !folded;
    if (!folded) return;
    const answers = this.group.summary();
    this.fold.replaceChildren(answers.map(({ answer }) => answer).join(" · "), icon("pencil"));
    this.fold.setAttribute("aria-label", answers.map(({ question, answer }) => `${question} ${answer}`).join(" "));
  }
}

export class TurnList {
  /** @param {any} task @param {import("./labels.js").Labels} labels */
  constructor(task, labels) {
    this.labels = labels;
    this.paired = task.sides.length > 1;
    const ofTurns = task.questions.filter((/** @type {Question} */ q) => q.scope === "turn");
    // A question about sides compares the two replies of a round; all the others are about one reply.
    this.roundQuestions = this.paired ? ofTurns.filter((/** @type {Question} */ q) => q.kind === "side") : [];
    this.turnQuestions = ofTurns.filter((/** @type {Question} */ q) => !this.roundQuestions.includes(q));
    this.rowList = h("ol", { class: "log" });
    this.element = h("div", { role: "log", "aria-label": t("heading.conversation") }, this.rowList);
    /** @type {Map<string, HTMLElement>} */
    this.items = new Map();
    /** @type {Map<string, Bar>} */
    this.bars = new Map();
    /** @type {Turn[]} */
    this.turns = [];
    labels.listeners.add(() => this.refresh());
  }

  /** @param {Turn[]} turns all of them */
  update(turns) {
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
    this.turns = turns;
    const targets = new Set(turns.map(({ id }) => `turn:${id}`));
    for (const target of this.bars.keys()) if (!targets.has(target)) this.bars.delete(target);
    const rows = this.rows().map((row) => this.row(row));
    if (!rows.length) rows.push((this.empty ??= h("li", { class: "empty" }, t("chat.hint"))));
    setChildren(this.rowList, rows);
    this.refresh();
    if (atEnd) window.scrollTo(0, document.documentElement.scrollHeight);
  }

  /** Turns that stand beside each other. */
  rows() {
    /** @type {Turn[][]} */
    const rows = [];
    for (const turn of this.turns) {
      const last = rows.at(-1);
      const joins = this.paired && !turn.mine && last && !last[0].mine;
      if (joins && last.every(({ side }) => side !== turn.side)) last.push(turn);
      else rows.push([turn]);
    }
    for (const row of rows) row.sort((a, b) => (a.side ?? "").localeCompare(b.side ?? ""));
    return rows;
  }

  /** @param {Turn[]} turns */
  row(turns) {
    const key = turns.map(({ id }) => id).join(" ");
    const items = turns.map((turn) => this.item(turn));
    const row = this.items.get(key) ?? h("li", { class: turns.length > 1 ? "round" : "row" });
    if (!this.items.has(key)) this.items.set(key, row);
    const pending = turns.some((turn) => turn.pending);
    const asks = !turns[0].mine && !pending && this.roundQuestions.length > 0;
    const parts = asks ? [...items, this.bar(roundTarget(turns), this.roundQuestions).element] : items;
    setChildren(row, parts);
    return row;
  }

  /** @param {Turn} turn */
  item(turn) {
    const known = this.items.get(`turn ${turn.id}`);
    const who = h("span", { class: "who" }, speakerName(turn, this.paired));
    const look = `turn ${turn.mine ? "mine" : "theirs"}`;
    const item = known ?? h("div", { class: look }, who, h("div", { class: "bubble", dir: "auto" }));
    this.items.set(`turn ${turn.id}`, item);
    const bubble = /** @type {HTMLElement} */ (item.querySelector(".bubble"));
    item.classList.toggle("pending", turn.pending);
    if (turn.pending && !turn.text) bubble.replaceChildren(dots(), h("span", { class: "sr" }, t("chat.typing")));
    else if (bubble.textContent !== turn.text) bubble.textContent = turn.text;
    if (!turn.mine && !turn.pending && this.turnQuestions.length && item.children.length === 2) {
      item.append(this.bar(`turn:${turn.id}`, this.turnQuestions).element);
    }
    return item;
  }

  /** @param {string} target @param {Question[]} questions */
  bar(target, questions) {
    const bar = this.bars.get(target) ?? new Bar(target, questions, this.labels);
    this.bars.set(target, bar);
    return bar;
  }

  refresh() {
    const bars = [...this.bars.values()];
    bars.forEach((bar, i) => bar.refresh(i === bars.length - 1));
    const latest = bars.at(-1)?.element;
    if (latest?.contains(document.activeElement)) latest.scrollIntoView({ block: "nearest" }); // it may have grown
  }

  /** The first required question about a reply that has no answer; null if there is none. */
  missing() {
    for (const { group } of this.bars.values()) {
      const open = group.missing();
      if (open) return open;
    }
    return null;
  }
}

/** What a question about two replies is stored under. @param {Turn[]} turns */
const roundTarget = (turns) => `turn:${turns[0].id}`;
