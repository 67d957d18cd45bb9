// The chat page: wires the parts together and turns the address (#c=ID) into the open conversation.

import * as api from "./api.js";
import { send, showComposer, startComposer } from "./composer.js";
import { startDialogs } from "./dialogs.js";
import { $, h } from "./dom.js";
import { showHead, startHead } from "./head.js";
import { onKick, untilReached } from "./link.js";
import { keepEnd, showLog } from "./log.js";
import { showNotices } from "./notices.js";
import { close, showList, startSide } from "./side.js";
import { change, complain, state, watch } from "./state.js";
import { deliverOthers, open, refresh } from "./talk.js";

const OPENERS = ["What is your perfect Sunday?", "Suggest a book for a rainy day.", "I just moved to a new city."];

/** @returns {string | null} the conversation that the address names */
const addressed = () => new URLSearchParams(location.hash.slice(1)).get("c");

/** Open what the address names, unless it is open. */
async function route() {
  const id = addressed();
  if (id === state.conversation.id && state.ready) return;
  try {
    await open(id);
  } catch (error) {
    history.replaceState(null, "", location.pathname + location.search);
    await open(null);
    complain(error);
  }
}

function startNew() {
  if (addressed()) history.pushState(null, "", location.pathname + location.search);
  close();
  open(null).catch(complain);
  $("text").focus();
}

/** Bring the greeting up to date with the state. */
function showEmpty() {
  const { conversation, unsent, ready } = state;
  const bot = state.bots.find((known) => known.id === conversation.bot);
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
  for (const show of [showHead, showList, showEmpty, showLog, showComposer, showNotices]) watch(show);
  startSide();
  startDialogs();
  startComposer();
  startEmpty();
  startHead(startNew);
  keepEnd($("latest"));
  $("new").addEventListener("click", startNew);
  const forever = new AbortController().signal;
  const [bots, personas, list] = await untilReached(
    () => Promise.all([api.bots(), api.personas(), api.conversations()]),
    forever,
  );
  change({ bots, personas, list });
  window.addEventListener("popstate", route);
  window.addEventListener("hashchange", route);
  onKick(() => deliverOthers().then(refresh));
  if (window.matchMedia("(hover: hover)").matches) $("text").focus();
  route();
  deliverOthers();
}

start().catch(complain);
