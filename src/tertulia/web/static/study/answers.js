// Which questions are asked, and which answers are missing: the rules of tertulia.study.questions, for the page.

/**
 * @typedef {import("./api.js").Question} Question
 * @typedef {import("./api.js").Value} Value
 */

/** @param {Question} question @param {Record<string, Value>} answers @returns {boolean} */
function isAsked(question, answers) {
  return Object.entries(question.when ?? {}).every(([name, values]) => values.includes(answers[name]));
}

/** The questions that the answers lead to. @param {Question[]} questions @param {Record<string, Value>} answers */
export function askedQuestions(questions, answers) {
  /** @type {Record<string, Value>} */
  const effective = {};
  return questions.filter((question) => {
    const asked = isAsked(question, effective);
    const value = asked ? answers[question.id] : question.otherwise;
    if (value !== undefined && value !== null && value !== "") effective[question.id] = value;
    return asked;
  });
}

/** @param {Question} question @returns {{value: Value, text: string, keys: string[]}[]} */
export function options(question, /** @type {(key: string) => string} */ t) {
  if (question.kind === "yes-no") {
    return [
      { value: true, text: t("label.yes"), keys: ["y", "1"] },
      { value: false, text: t("label.no"), keys: ["n", "2"] },
    ];
  }
  if (question.kind === "scale") {
    const { low = 1, high = 5 } = question;
    const numbers = Array.from({ length: high - low + 1 }, (_, i) => low + i);
    return numbers.map((number) => ({ value: number, text: String(number), keys: [String(number)] }));
  }
  const letters = /** @type {Record<string, string>} */ ({ A: "a", B: "b", tie: "t", up: "+", down: "-" });
  return (question.choices ?? []).map(({ value, text }, i) => ({
    value,
    text,
    keys: [...(letters[value] ? [letters[value]] : []), String(i + 1)],
  }));
}
