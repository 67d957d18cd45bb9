// The list of conversations; on a narrow window a drawer, which keeps the keyboard to itself while it is open.

import { $, h } from "./dom.js";
import { botName, state } from "./state.js";
import { brief, exact, period } from "./when.js";

const side = $("side");
const narrow = window.matchMedia("(max-width: 48rem)");
let listed = "";

/** @param {import("./api.js").Line} line */
function entry(line) {
  const here = line.id === state.conversation.id;
  return h(
    "li",
    {},
    h(
      "a",
      { href: `#c=${line.id}`, "aria-current": here ? "page" : null, title: exact(line.updated), onclick: close },
      h("span", { class: "name", dir: "auto" }, line.title || "New conversation"),
      h("span", { class: "with" }, `${botName(line.bot)} · ${brief(line.updated)}`),
    ),
  );
}

/** Bring the list up to date with the state. */
export function showList() {
  const { list, conversation, bots } = state;
  const now = JSON.stringify([list, conversation.id, bots, new Date().toDateString()]);
  if (now === listed) return; // the list is rebuilt only for a reason, or it would lose the keyboard's place
  listed = now;
  const focused = document.activeElement?.closest("#list a")?.getAttribute("href");
  /** @type {Map<string, HTMLElement[]>} */
  const groups = new Map();
  for (const line of list) groups.set(period(line.updated), [...(groups.get(period(line.updated)) ?? []), entry(line)]);
  const nodes = [...groups].flatMap(([name, lines]) => [h("h2", {}, name), h("ul", {}, ...lines)]);
  if (!nodes.length) nodes.push(h("p", { class: "none" }, "Your conversations will be listed here."));
  $("list").replaceChildren(...nodes);
  if (focused) $("list").querySelector(`a[href="${focused}"]`)?.focus();
}

const isOpen = () => side.classList.contains("open");

/** What is behind an open drawer, or in a closed one, cannot be reached. */
function settle() {
  const open = narrow.matches && isOpen();
  side.inert = narrow.matches && !open;
  $("room").inert = open;
  $("shade").hidden = !open;
  $("side-open").setAttribute("aria-expanded", String(open));
}

function open() {
  side.classList.add("open");
  settle();
  $("new").focus();
}

/** Close the drawer, if it is one and open. */
export function close() {
  const was = isOpen();
  side.classList.remove("open");
  settle();
  if (was && narrow.matches) $("side-open").focus();
}

/** Make the drawer work. */
export function startSide() {
  $("side-open").setAttribute("aria-controls", "side");
  $("side-open").addEventListener("click", open);
  $("side-close").addEventListener("click", close);
  $("shade").addEventListener("click", close);
  side.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !isOpen()) return;
    event.stopPropagation();
    close();
  });
  narrow.addEventListener("change", settle);
  settle();
}
