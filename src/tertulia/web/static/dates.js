// Dates and times in the visitor's locale.

const DAY_MS = 86_400_000;
const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** @param {Date} date @returns {number} midnights (local time) since then */
function daysAgo(date) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  return Math.max(0, Math.ceil((midnight - date.getTime()) / DAY_MS));
}

/** @param {string} iso @returns {string} the heading of its group in the list */
export function period(iso) {
  const days = daysAgo(new Date(iso));
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  return days <= 7 ? "Last 7 days" : "Earlier";
}

/** @param {string} iso @returns {string} */
export function brief(iso) {
  const date = new Date(iso);
  return daysAgo(date) <= 1 ? clock.format(date) : day.format(date);
}

/** @param {string} iso @returns {string} */
export const exact = (iso) => full.format(new Date(iso));
