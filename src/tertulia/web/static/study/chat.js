// Chatting with one partner or with two side by side; questions about replies while chatting, and about all at the end.

import { $, h, tool } from "../dom.js";
import { newKey } from "../storage.js";
import { ApiError } from "../api.js";
import { get, post } from "./api.js";
import { Composer, recall, remember } from "./composer.js";
import { Form, reloadAfter } from "./form.js";
import { button, showAlert, showError, showSaved, showStep } from "./frame.js";
import { focusQuestion, setKeys } from "./keys.js";
import { Labels } from "./labels.js";
import { Live } from "./live.js";
import { card, instructions, personaCards, personaList, transcript } from "./material.js";
import { adopt, apply, state, t, version } from "./session.js";
import { follow } from "./stream.js";
import { TurnList } from "./turns.js";

/** @type {Chat | null} */
let shown = null;

class Chat {
  /** @param {any} task */
  constructor(task) {
    this.task = task;
    this.assignment = task.assignment;
    this.labels = new Labels(task, (error) => reloadAfter(error).catch(showError));
    this.list = new TurnList(task, this.labels);
    const send = (/** @type {string} */ text) => this.send(text).catch(showError);
    this.composer = new Composer(task, { send, typing: () => this.live?.typing() });
    this.form = new Form(task, this.labels);
    this.form.before = () => this.list.missing(); // a chat that has reached its full length may still lack labels
    this.leaving = new AbortController();
    this.busy = false;
    this.meter = h("p", { class: "meter", role: "status" });
    this.finishButton = button("finish", t("button.finish"), () => this.finish());
    this.leaveButton = button("leave", t("button.leave"), () => this.giveUp());
    this.undoButton = tool(t("button.undo"), "undo", () => this.labels.undo());
    this.undoButton.id = "undo-label";
    this.presence = h("p", { class: "presence", role: "status" });
    this.end = h("section", { class: "end panel still", "aria-label": t("heading.questions") });
    const bar = h("div", { class: "chat-bar" }, this.meter, this.undoButton, this.leaveButton, this.finishButton);
    this.bottom = h("div", { class: "bottom" }, this.presence, this.composer.element, bar);
    this.labels.listeners.add(() => this.showControls());
    this.live = task.chat.live ? new Live(task, this) : null;
  }

  show() {
    const { task } = this;
    const aside = [
      task.own_persona ? card(t("heading.own_persona"), "own", personaList(task.own_persona)) : null,
      task.sides.length > 1 ? h("p", { class: "card fine" }, t("chat.two_replies")) : null,
      instructions(task.instructions),
      task.context?.length ? card(t("heading.conversation"), "context", transcript(task.context)) : null,
    ];
    showStep(
      h(
        "div",
        { class: task.sides.length > 1 ? "work chatting arena" : "work chatting" },
        h("h1", { class: "sr" }, t("heading.work")),
        h("div", { class: "aside" }, ...aside),
        h("div", { class: "talk" }, this.list.element, this.bottom, this.end),
      ),
    );
    this.update(task);
    if (!task.chat.ended) {
      window.scrollTo(0, document.documentElement.scrollHeight);
      this.toNextAction();
    }
    this.resume().catch(showError);
    this.live?.start();
  }

  /** Show what the server has. @param {any} task @param {boolean} [fresh] no answer was given since it was asked */
  update(task, fresh = true) {
    this.task = task;
    if (fresh && this.labels.waiting === 0) this.labels.take(task);
    // Whether the partner is a person or a bot must not show: without words there is nothing to see of either.
    const turns = task.chat.turns.filter((/** @type {any} */ turn) => !this.live || !turn.pending);
    const last = turns.findLastIndex((/** @type {any} */ turn) => turn.mine);
    if (task.chat.failed && last >= 0 && turns.length - last - 1 < task.sides.length) {
      // Not all replies came: the message goes back into the box, and the server replaces it by what is sent next.
      const [message] = turns.splice(last);
      if (!this.composer.box.value) this.composer.fill(message.text);
    }
    this.list.update(turns);
    this.showControls();
  }

  showControls() {
    const { chat } = this.task;
    const label = this.list.missing();
    this.bottom.hidden = Boolean(chat.ended);
    this.end.hidden = !chat.ended;
    const waits = this.busy || (this.live !== null && !chat.can_say);
    const reason = waits ? t("chat.waiting_for_reply") : label ? t("chat.label_first") : "";
    this.composer.allow(reason, !waits && label !== null);
    const { turns_done: done, min_turns: least, max_turns: most } = chat;
    const mayFinish = chat.turns.length > 0 && done >= least && !this.busy && !chat.failed && !label;
    this.meter.textContent = turnsText(done, least, most);
    this.finishButton.hidden = !mayFinish;
    this.leaveButton.hidden = !chat.failed || this.busy;
    this.undoButton.hidden = this.task.questions.every((/** @type {any} */ q) => q.scope !== "turn");
    this.undoButton.toggleAttribute("disabled", !this.labels.canUndo);
    if (chat.ended) this.showEnd();
    else this.setChatKeys();
  }

  setChatKeys() {
    setKeys({ submit: () => this.toNextAction(), undo: () => this.labels.undo(), answered: () => this.toNextAction() });
  }

  /** Put the focus where the participant has to go on: an open question, else the box. */
  toNextAction() {
    const open = this.list.missing();
    if (open) focusQuestion(open);
    else this.composer.box.focus();
  }

  /** @param {string} text */
  async send(text) {
    const open = this.list.missing();
    if (this.busy || open) return focusQuestion(open);
    const message = { text, key: newKey() };
    this.busy = true;
    remember(`${this.assignment}.unsent`, message);
    this.composer.fill("");
    this.showControls();
    await this.labels.settled(); // the server takes no message before the answers about the last reply
    const refused = this.list.missing();
    if (refused) {
      this.busy = false;
      remember(`${this.assignment}.unsent`, null);
      this.composer.fill(text);
      this.showControls();
      return focusQuestion(refused);
    }
    this.live?.sent();
    return this.exchange(message);
  }

  /** Go on where a reload or a lost connection left off. */
  async resume() {
    const { turns } = this.task.chat;
    const unsent = recall(`${this.assignment}.unsent`);
    if (unsent) return this.exchange(unsent);
    if (!this.live && turns.some((/** @type {any} */ turn) => turn.pending)) return this.exchange(null);
    return undefined;
  }

  /**
   * Send a message, or pick up a pending reply, and show what comes.
   * @param {{text: string, key: string} | null} message
   */
  async exchange(message) {
    showAlert("");
    this.busy = true;
    const before = this.list.turns.filter((turn) => !turn.pending);
    const sides = /** @type {string[]} */ (this.live ? [] : this.task.sides);
    const mine = message && { id: "unsent", mine: true, text: message.text, side: null, pending: false };
    const empty = { mine: false, text: "", pending: true };
    const replies = new Map(sides.map((side) => [side, { ...empty, id: `pending-${side}`, side }]));
    const draw = () => this.list.update([...before, ...(mine ? [mine] : []), ...replies.values()]);
    draw();
    this.showControls();
    window.scrollTo(0, document.documentElement.scrollHeight);
    try {
      await follow(this.assignment, message, sides.length, this.leaving.signal, (event, data) => {
        if (event === "user") remember(`${this.assignment}.unsent`, null);
        if (event === "user" && mine) mine.id = data.id;
        const reply = replies.get(data?.side ?? sides[0]);
        if (reply && event === "start") Object.assign(reply, { id: data.id, text: data.text ?? "" });
        if (reply && event === "piece") reply.text += data.text;
        if (reply && event === "done") Object.assign(reply, { text: data.text, pending: false });
        if (event === "error") showAlert(data?.text || t("error.bot"));
        if (event !== "error") draw();
      });
    } catch (error) {
      remember(`${this.assignment}.unsent`, null);
      if (message && error instanceof ApiError) this.composer.fill(message.text);
      showError(error);
    }
    this.busy = false;
    await this.reload();
    this.toNextAction();
  }

  /** Read the state, which knows how many turns there are and what may be done. */
  async reload() {
    let asked, answers, now;
    do {
      [asked, answers] = [version(), this.labels.changes];
      now = await get("state");
      if (this.leaving.signal.aborted) return;
    } while (version() !== asked); // another state came in between, and may be the newer one
    if (now.step !== "work" || now.task?.assignment !== this.assignment) return apply(now);
    adopt(now);
    this.update(now.task, this.labels.changes === answers);
  }

  /** @param {string} turn @returns {boolean} whether it is shown */
  knows(turn) {
    return this.list.turns.some(({ id }) => id === turn);
  }

  async finish() {
    const open = this.list.missing();
    if (open) {
      showAlert(t("chat.label_first"));
      return focusQuestion(open);
    }
    await this.labels.settled();
    const now = await post("finish", { assignment: this.assignment });
    apply(now);
    return this.form.groups.length ? undefined : this.form.submit(); // nothing is left to be asked
  }

  /** The partner does not answer, however often the message is sent. */
  async giveUp() {
    remember(`${this.assignment}.unsent`, null);
    apply(await post("leave"));
    showAlert("");
  }

  showEnd() {
    if (this.end.childElementCount) return this.form.refresh();
    if (this.task.personas) this.end.append(personaCards(this.task.personas));
    this.form.addTargets();
    this.end.prepend(h("h2", { tabindex: "-1", id: "end-heading" }, t("chat.ended")));
    this.end.append(this.form.element);
    this.form.start();
    const open = this.list.missing();
    if (open) return focusQuestion(open);
    $("end-heading").focus({ preventScroll: true });
    return this.end.scrollIntoView({ block: "start" });
  }

  leave() {
    this.leaving.abort();
    this.live?.stop();
    showSaved("");
  }
}

/** @param {number} done @param {number} least @param {number | null} most messages of both sides */
function turnsText(done, least, most) {
  if (done < least) return t("progress.turns", { done, total: least });
  return most ? t("progress.turns_max", { done, total: most }) : t("progress.can_finish");
}

/** @param {any} now */
export function showChat(now) {
  if (shown?.assignment === now.task.assignment && shown?.list.element.isConnected) {
    shown.update(now.task);
    return;
  }
  leaveChat();
  shown = new Chat(now.task);
  shown.show();
}

/** Stop listening to a chat that is no longer shown. */
export function leaveChat() {
  if (shown && state()?.task?.assignment !== shown.assignment) {
    shown.leave();
    shown = null;
  }
}
