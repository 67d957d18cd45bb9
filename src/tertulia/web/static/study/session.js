// The participant's state as the server last gave it, and the interface's strings, which come with it.

/** @type {any} */
let current = null;
let taken = 0;
/** @type {(state: any) => void} */
let show = () => {};

export const state = () => current;

/** Show every new state with `view`. @param {(state: any) => void} view */
export function onState(view) {
  show = view;
}

/** Take a state from the server and show it. @param {any} next */
export function apply(next) {
  adopt(next);
  show(next);
}

/** Take a state without showing it: the view that asked for it does so itself. @param {any} next */
export function adopt(next) {
  current = next;
  taken += 1;
}

/** How many states were taken so far: one that was asked for before the last of them is old. */
export const version = () => taken;

/**
 * A string of the interface with its {names} filled in.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  return (current?.texts?.[key] ?? key).replace(/\{(\w+)\}/g, (/** @type {string} */ all, /** @type {string} */ name) =>
    String(values[name] ?? all),
  );
}
