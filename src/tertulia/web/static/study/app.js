// The page of a study. Everything it shows comes from the participant's state, so a reload or another device goes on at
// the same point.

import { $, h } from "../dom.js";
import { ApiError } from "../api.js";
import { get, post } from "./api.js";
import { showAttention } from "./attention.js";
import { leaveChat, showChat } from "./chat.js";
import { showConsent } from "./consent.js";
import { showEnding } from "./ending.js";
import { showAlert, showError, showFrame, showStep, startFrame } from "./frame.js";
import { showJudge } from "./judge.js";
import { setKeys, startKeys } from "./keys.js";
import { apply, onState, state, t, version } from "./session.js";
import { showTraining } from "./training.js";
import { showTutorial } from "./tutorial.js";
import { leaveWaiting, showWaiting } from "./waiting.js";
import { showWrite } from "./write.js";

const HEARTBEAT_MS = 20_000;
const PREPARING_MS = 1500;
const PROTOCOLS = { judge: showJudge, chat: showChat, write: showWrite };
const STEPS = /** @type {Record<string, (now: any) => void>} */ ({
  consent: showConsent,
  tutorial: showTutorial,
  training: showTraining,
  waiting: showWaiting,
  work: showWork,
});

/** @param {any} now */
function showWork(now) {
  if (now.task) PROTOCOLS[/** @type {keyof typeof PROTOCOLS} */ (now.task.protocol)](now);
  else if (now.attention) showAttention(now);
  else if (now.preparing) showPreparing();
  else {
    showStep(h("h1", { class: "sr" }, t("heading.work"))); // what was handed in can no longer be changed
    post("next").then(apply).catch(showError);
  }
}

/** The bots are being loaded: ask again in a while. */
function showPreparing() {
  const text = h("p", { role: "status" }, t("waiting.preparing"));
  showStep(h("div", { class: "column ending" }, h("h1", {}, t("heading.preparing")), text));
  window.setTimeout(() => post("next").then(apply).catch(showError), PREPARING_MS);
}

/** @param {any} now */
function show(now) {
  leaveWaiting();
  leaveChat();
  setKeys({});
  showFrame(now);
  (STEPS[now.step] ?? showEnding)(now);
}

/** What changes when another device of the participant goes on. @param {any} now */
const position = ({ step, training, task }) =>
  JSON.stringify([step, training?.index, task?.assignment, task?.chat?.ended, task?.chat?.turns.length]);

/** After a while in the background, something may have happened elsewhere. */
async function catchUp() {
  const before = version();
  const next = await get("state");
  if (version() === before && position(next) !== position(state())) apply(next);
}

async function heartbeat() {
  const now = state();
  if (document.visibilityState !== "visible" || now?.step !== "work") return;
  await post("heartbeat", now.task ? { assignment: now.task.assignment } : {});
}

/** Without a session there are no texts either. @param {unknown} error */
function showFailure(error) {
  const message = error instanceof ApiError ? error.message : String(error);
  const hint = error instanceof ApiError ? error.hint : "";
  showStep(h("div", { class: "column ending" }, h("h1", {}, message), h("p", {}, hint)));
}

onState(show);
startKeys();
startFrame({
  chooseLanguage: async (language) => apply(await post("language", { language })),
  withdraw: async () => {
    apply(await post("withdraw", { confirm: true }));
    showAlert("");
  },
});
$("language-field").hidden = true;
get("preview" in document.body.dataset ? "state?preview=true" : "state").then(apply).catch(showFailure);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && state()) catchUp().catch(showError);
});
window.setInterval(() => heartbeat().catch(() => {}), HEARTBEAT_MS); // a missed one does not matter
