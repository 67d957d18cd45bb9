// The evidence dialog: a text that replies should rest on. A blank line separates passages.

import { openDialog } from "./dialogs.js";
import { $ } from "./dom.js";
import { botName, state } from "./state.js";

/** @param {number} count */
export const passageCount = (count) => (count === 1 ? "1 passage" : `${count} passages`);

/** @param {string} text @returns {string[]} what is between blank lines */
const passages = (text) =>
  text
    .split(/\n\s*\n/)
    .map((passage) => passage.trim())
    .filter(Boolean);

/** Say on the button what it will do. */
function showChoice() {
  const count = passages($("evidence-text").value).length;
  $("evidence-ok").textContent = count ? `Use ${passageCount(count)}` : "Use no evidence";
}

/** @returns {string} what the bot makes of evidence */
function note() {
  const { bot } = state.conversation;
  if (state.bots.find(({ id }) => id === bot)?.evidence) return `${botName(bot)} reads the evidence before it replies.`;
  return `${botName(bot)} ignores evidence: it is kept with the conversation, but does not change the replies.`;
}

/**
 * @param {string[] | null} evidence the current one
 * @returns {Promise<{evidence: string[] | null} | null>} null when cancelled
 */
export async function askEvidence(evidence) {
  $("evidence-text").value = (evidence ?? []).join("\n\n");
  $("evidence-note").textContent = note();
  showChoice();
  const answer = openDialog($("evidence-dialog"));
  $("evidence-text").focus();
  if (!(await answer)) return null;
  const given = passages($("evidence-text").value);
  return { evidence: given.length ? given : null };
}

/** Connect the dialog. */
export function startEvidence() {
  $("evidence-text").addEventListener("input", showChoice);
}
