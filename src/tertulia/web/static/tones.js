// A colour for each bot. Hues follow the golden angle, so that none repeats however many bots there are, and neighbours
// in the list differ most. The rules live in a style sheet of their own: inline styles are forbidden by the page's policy.

import { state } from "./state.js";

const GOLDEN_ANGLE = 137.508;
const sheet = new CSSStyleSheet();
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

/** Make as many colours as there are bots; those of every second dozen are lighter. */
export function makeTones() {
  const rules = state.bots.map((_, index) => {
    const hue = ((35 + index * GOLDEN_ANGLE) % 360).toFixed(1);
    const [light, dark] = Math.floor(index / 12) % 2 ? [0.64, 0.68] : [0.53, 0.8];
    return `.tone-${index} { --tone: light-dark(oklch(${light} 0.13 ${hue}), oklch(${dark} 0.11 ${hue})); }`;
  });
  sheet.replaceSync(rules.join("\n"));
}

/** @param {string | null} bot @returns {string} the class of a colour that stays with the bot; grey if it is not served */
export function tone(bot) {
  const index = state.bots.findIndex(({ id }) => id === bot);
  return index < 0 ? "tone-none" : `tone-${index}`;
}
