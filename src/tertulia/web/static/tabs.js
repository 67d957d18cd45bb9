// The other tabs of this browser: each tells the others what it has changed on the server, and they follow along.

/** @typedef {{kind: "changed" | "removed" | "erased", id: string | null}} TabMessage */

const channel = "BroadcastChannel" in window ? new BroadcastChannel("tertulia") : null;

/** @param {TabMessage["kind"]} kind @param {string | null} [id] of the conversation */
export function tellTabs(kind, id = null) {
  channel?.postMessage({ kind, id });
}

/** @param {(message: TabMessage) => void} listener */
export function onTabs(listener) {
  channel?.addEventListener("message", ({ data }) => listener(data));
}
