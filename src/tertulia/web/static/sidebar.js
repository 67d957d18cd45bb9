// The list of conversations; on a narrow window a drawer, which traps the keyboard focus while it is open.

import { $, h } from "./dom.js";
import { loadOlder } from "./replies.js";
import { botName, showError, state } from "./state.js";
import { brief, exact, period } from "./dates.js";

const side = $("side");
const narrow = window.matchMedia("(max-width: 48rem)");
let listed = "";

/** @param {import("./api.js").ConversationSummary & {excerpt?: string | null}} summary */
function entry(summary) {
  const current = summary.id === state.conversation.id;
  return h(
    "li",
    {},
    h(
      "a",
      {
        href: `#c=${summary.id}`,
        "aria-current": current ? "page" : null,
        title: exact(summary.updated),
        onclick: close,
      },
      h("span", { class: "name", dir: "auto" }, summary.title || "New conversation"),
      summary.excerpt && summary.excerpt !== summary.title && h("span", { class: "excerpt", dir: "auto" }, summary.excerpt),
      h("span", { class: "with" }, `${botName(summary.bot)} · ${brief(summary.updated)}`),
    ),
  );
}

function olderButton() {
  const onclick = () => loadOlder().catch(showError);
  return h("button", { type: "button", class: "button quiet older", onclick }, "Show older conversations");
}

/** Update the list from the state. */
export function showList() {
  const { conversation, bots, hits } = state;
  const list = hits ?? state.list;
  const now = JSON.stringify([list, hits === null, state.more, conversation.id, bots, new Date().toDateString()]);
  if (now === listed) return; // rebuilding without a reason would lose the keyboard focus
  listed = now;
  const focused = document.activeElement?.closest("#list a")?.getAttribute("href");
  /** @type {Map<string, HTMLElement[]>} */
  const groups = new Map();
  for (const summary of list) {
    const name = period(summary.updated);
    groups.set(name, [...(groups.get(name) ?? []), entry(summary)]);
  }
  const nodes = [...groups].flatMap(([name, lines]) => [h("h2", {}, name), h("ul", {}, ...lines)]);
  if (!nodes.length) nodes.push(h("p", { class: "none" }, hits ? "No conversation found." : "Your conversations will be listed here."));
  if (state.more && !hits) nodes.push(olderButton());
  $("list").replaceChildren(...nodes);
  if (focused) $("list").querySelector(`a[href="${focused}"]`)?.focus();
}

const isOpen = () => side.classList.contains("open");

/** Make what is behind an open drawer, or in a closed one, unreachable. */
function updateInert() {
  const open = narrow.matches && isOpen();
  side.inert = narrow.matches && !open;
  $("room").inert = open;
  $("shade").hidden = !open;
  $("side-open").setAttribute("aria-expanded", String(open));
}

function open() {
  side.classList.add("open");
  updateInert();
  $("new").focus();
}

/** Close the drawer, if it is open. */
export function close() {
  const was = isOpen();
  side.classList.remove("open");
  updateInert();
  if (was && narrow.matches) $("side-open").focus();
}

/** Connect the drawer. */
export function startSidebar() {
  $("side-open").setAttribute("aria-controls", "side");
  $("side-open").addEventListener("click", open);
  $("side-close").addEventListener("click", close);
  $("shade").addEventListener("click", close);
  side.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !isOpen()) return;
    event.stopPropagation();
    close();
  });
  narrow.addEventListener("change", updateInert);
  updateInert();
}
