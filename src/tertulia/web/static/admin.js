// The researchers' pages work without this. It adds the theme switch, and refreshes the figures of a dashboard.
const INTERVAL = 5000;

/** The theme switch. */
function startTheme() {
  const button = document.querySelector("#theme");
  const theme = window.tertuliaTheme;
  if (!button || !theme) return;
  const show = () => {
    const other = theme.current() === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
    button.querySelector("use").setAttribute("href", other === "dark" ? "#icon-moon" : "#icon-sun");
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    theme.toggle();
    show();
  });
  theme.watch(show);
  show();
}

/** Fetches the figures again and again. The status line is announced only when it changes. */
function startLive() {
  const region = document.querySelector("#live");
  const status = document.querySelector("#live-status");
  const pause = document.querySelector("#live-pause");
  if (!region || !status || !pause) return;
  let paused = false;
  let last = region.querySelector("[data-summary]")?.dataset.summary ?? "";

  /** @param {string} text */
  const announce = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };

  /** Replaces the figures, but leaves open what was open, and where the reader is. @param {string} html */
  function replace(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const open = [...region.querySelectorAll("details[open][data-keep]")].map((node) => node.dataset.keep);
    const offsets = [...region.querySelectorAll(".scroll")].map((node) => [node.scrollLeft, node.scrollTop]);
    region.replaceChildren(...fresh.body.childNodes);
    for (const node of region.querySelectorAll("details[data-keep]")) node.open = open.includes(node.dataset.keep);
    region.querySelectorAll(".scroll").forEach((node, i) => {
      if (offsets[i]) [node.scrollLeft, node.scrollTop] = offsets[i];
    });
  }

  const isBusy = () => paused || document.hidden || region.contains(document.activeElement);

  async function refresh() {
    if (isBusy()) return;
    try {
      const response = await fetch(region.dataset.address, { headers: { Accept: "text/html" } });
      if (response.status === 401) {
        location.reload(); // the session has ended: the page leads to the form
        return;
      }
      if (!response.ok) throw new Error(String(response.status));
      const html = await response.text();
      if (isBusy()) return; // since the request
      replace(html);
      const summary = region.querySelector("[data-summary]")?.dataset.summary ?? "";
      if (summary !== last || status.textContent.startsWith("No connection")) announce(summary);
      last = summary;
    } catch {
      announce("No connection: the figures may be old. Trying again.");
    }
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    announce(paused ? "Updates are paused." : "Updates every 5 seconds.");
  });
  announce("Updates every 5 seconds.");
  setInterval(refresh, INTERVAL);
}

startTheme();
startLive();
