// Words, and what a text copies from a persona: the rules of tertulia.study.writing, so that the page can warn early.

const PART = "[\\p{L}\\p{N}][\\p{L}\\p{N}\\p{M}]*";
const WORD = new RegExp(`${PART}(?:['’\\-]${PART})*`, "gu");

/** @param {string} text @returns {string[]} */
export const words = (text) => text.toLowerCase().replaceAll("’", "'").match(WORD) ?? [];

/** @param {string[]} written @param {string[]} original @returns {string[]} the longest run that both have */
function longestCommonRun(written, original) {
  let best = 0;
  let end = 0;
  let before = new Array(original.length + 1).fill(0);
  for (let i = 0; i < written.length; i += 1) {
    const lengths = new Array(original.length + 1).fill(0);
    for (let j = 0; j < original.length; j += 1) {
      if (written[i] !== original[j]) continue;
      lengths[j + 1] = before[j] + 1;
      if (lengths[j + 1] > best) [best, end] = [lengths[j + 1], i + 1];
    }
    before = lengths;
  }
  return written.slice(end - best, end);
}

/** @param {string} text @param {string[]} sentences @returns {string[]} */
export function copiedRun(text, sentences) {
  const written = words(text);
  const runs = sentences.map((sentence) => longestCommonRun(written, words(sentence)));
  return runs.reduce((a, b) => (b.length > a.length ? b : a), []);
}

/**
 * How many words a text has, and why it would be refused.
 * @param {string} text
 * @param {{max_words?: number | null, copy_limit?: number | null}} limits
 * @param {string[]} persona
 * @param {(key: string, values?: any) => string} t
 * @returns {{count: number, problem: string}}
 */
export function checkText(text, { max_words: limit, copy_limit: longest }, persona, t) {
  const count = words(text).length;
  if (limit && count > limit) return { count, problem: t("writing.too_many_words", { limit, count }) };
  const run = longest ? copiedRun(text, persona) : [];
  if (longest && run.length > longest) return { count, problem: t("writing.copied", { words: run.join(" ") }) };
  return { count, problem: "" };
}
