// Searching one's conversations, in titles and texts. The server searches; results take the place of the list.

import * as api from "./api.js";
import { $ } from "./dom.js";
import { change, showError, state } from "./state.js";

const PAUSE_MS = 200;
const field = $("find");
let timer = 0;

async function search() {
  const words = field.value.trim();
  if (!words) {
    change({ hits: null });
    $("find-result").textContent = "";
    return;
  }
  const hits = await api.search(words);
  if (words !== field.value.trim()) return; // a later search is on its way
  change({ hits });
  const count = hits.length === 1 ? "1 conversation" : `${hits.length} conversations`;
  $("find-result").textContent = `${hits.length ? count : "No conversation"} found.`;
}

/** Repeat the search, when conversations have changed. */
export const repeatSearch = () => state.hits && search().catch(() => {});

/** Connect the search box. */
export function startSearch() {
  field.addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => search().catch(showError), PAUSE_MS);
  });
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && field.value) {
      event.preventDefault();
      event.stopPropagation();
      field.value = "";
      search();
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      $("list").querySelector("a")?.focus();
    }
  });
}
