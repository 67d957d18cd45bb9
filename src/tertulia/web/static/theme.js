// Applies the saved theme to <html> before the first paint. The choice is saved only while it differs from the system's
// setting: toggling back follows the system again.
(() => {
  const KEY = "tertulia.theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const system = () => (dark.matches ? "dark" : "light");

  /** @returns {string | null} */
  function saved() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be blocked; the page works without it
    }
  }

  /** @param {string | null} choice */
  function save(choice) {
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
  apply(saved());

  window.tertuliaTheme = {
    current,
    toggle() {
      const next = current() === "dark" ? "light" : "dark";
      const choice = next === system() ? null : next;
      save(choice);
      apply(choice);
    },
    /** @param {() => void} listener */
    watch: (listener) => dark.addEventListener("change", listener),
  };
})();
