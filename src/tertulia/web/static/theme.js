// The remembered theme, put on <html> before anything is painted. The choice is kept only while it differs from what
// the system asks for: who toggles back follows the system again.
(() => {
  const KEY = "tertulia.theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const system = () => (dark.matches ? "dark" : "light");

  /** @returns {string | null} */
  function remembered() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; the page works without
    }
  }

  /** @param {string | null} choice */
  function remember(choice) {
    try {
      if (choice) localStorage.setItem(KEY, choice);
      else localStorage.removeItem(KEY);
    } catch {
      // as above
    }
  }

  /** @param {string | null} choice */
  function apply(choice) {
    if (choice === "dark" || choice === "light") document.documentElement.dataset.theme = choice;
    else delete document.documentElement.dataset.theme;
  }

  const current = () => document.documentElement.dataset.theme ?? system();
  apply(remembered());

  window.tertuliaTheme = {
    current,
    toggle() {
      const next = current() === "dark" ? "light" : "dark";
      const choice = next === system() ? null : next;
      remember(choice);
      apply(choice);
    },
    /** @param {() => void} listener */
    watch: (listener) => dark.addEventListener("change", listener),
  };
})();
