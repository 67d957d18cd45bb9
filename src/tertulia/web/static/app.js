// The chat page: connects the parts and opens the conversation that the address (#c=ID) names.

import * as api from "./api.js";
import { send, showComposer, startComposer } from "./composer.js";
import { startDialogs } from "./dialogs.js";
import { startEvidence } from "./evidence.js";
import { $, h } from "./dom.js";
import { showHeader, startHeader } from "./header.js";
import { onWake, retryUntilReached } from "./connection.js";
import { followEnd, showLog } from "./log.js";
import { showNotices } from "./notices.js";
import { close, showList, startSidebar } from "./sidebar.js";
import { change, showError, state, watch } from "./state.js";
import { deliverFromOthers, open, refresh } from "./messages.js";
import { startPersonas } from "./personas.js";
import { showPicker, startPicker } from "./picker.js";
import { showPreferences, startPreferences } from "./preferences.js";
import { refreshList } from "./replies.js";
import { repeatSearch, startSearch } from "./search.js";
import { onTabs } from "./tabs.js";
import { makeTones } from "./tones.js";
import { closeWhy, startWhy } from "./why.js";

const OPENERS = ["What is your perfect Sunday?", "Suggest a book for a rainy day.", "I just moved to a new city."];

/** @returns {string | null} the id of the conversation in the address */
const idInAddress = () => new URLSearchParams(location.hash.slice(1)).get("c");

/** Open the conversation in the address, unless it is open already. */
async function route() {
  const id = idInAddress();
  if (id === state.conversation.id && state.ready) return;
  closeWhy();
  try {
    await open(id);
  } catch (error) {
    history.replaceState(null, "", location.pathname + location.search);
    await open(null);
    showError(error);
  }
}

function startNew() {
  if (idInAddress()) history.pushState(null, "", location.pathname + location.search);
  close();
  closeWhy();
  open(null).catch(showError);
  $("text").focus();
}

/** Another tab has changed something on the server. @param {import("./tabs.js").TabMessage} message */
async function onOtherTab({ kind, id }) {
  const here = kind === "erased" ? state.conversation.id !== null : id === state.conversation.id;
  if (here && kind !== "changed") startNew();
  if (here && kind === "changed") await refresh();
  else await refreshList();
  repeatSearch();
}

/** Update the greeting from the state. */
function showEmpty() {
  const { conversation, unsent, ready } = state;
  const bot = state.bots.find(({ id }) => id === conversation.bot);
  $("empty").hidden = !ready || conversation.turns.length > 0 || unsent !== null;
  $("log").hidden = !$("empty").hidden;
  $("empty-bot").textContent = bot ? `You are talking to ${bot.name}.` : "";
  $("empty-summary").textContent = bot?.summary ?? "";
}

function startEmpty() {
  for (const words of OPENERS) {
    $("chips").append(h("li", {}, h("button", { type: "button", onclick: () => send(words) }, words)));
  }
}

async function start() {
  const views = [showHeader, showPicker, showPreferences, showList, showEmpty, showLog, showComposer, showNotices];
  for (const show of views) watch(show);
  startSidebar();
  startDialogs();
  startPersonas();
  startEvidence();
  startPicker();
  startPreferences();
  startSearch();
  startWhy();
  startComposer();
  startEmpty();
  startHeader(startNew);
  followEnd($("latest"));
  $("new").addEventListener("click", startNew);
  const forever = new AbortController().signal;
  const [bots, personas, list] = await retryUntilReached(
    () => Promise.all([api.bots(), api.personas(), api.conversations()]),
    forever,
  );
  change({ bots, personas, list });
  makeTones();
  refreshList(); // also says whether there are more
  window.addEventListener("popstate", route);
  window.addEventListener("hashchange", route);
  onTabs((message) => onOtherTab(message).catch(showError));
  onWake(() => deliverFromOthers().then(refresh));
  if (window.matchMedia("(hover: hover)").matches) $("text").focus();
  route();
  deliverFromOthers();
}

start().catch(showError);
