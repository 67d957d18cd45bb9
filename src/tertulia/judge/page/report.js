"use strict";
// Behind every cell of the report: its units, their values and their texts. The data is in this page, in blocks that
// are unpacked when they are needed. Texts are strangers': they only ever become text nodes.
(() => {
  const PAGE = 20;
  const LONG = 1500; // characters of a text that are shown at once
  const index = JSON.parse(document.getElementById("index").textContent);
  const unpacked = new Map();

  async function block(number) {
    if (!unpacked.has(number)) unpacked.set(number, unpack(number));
    return unpacked.get(number);
  }

  async function unpack(number) {
    const packed = atob(document.getElementById(`block-${number}`).textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  async function texts(item) {
    if (item < 0) return null;
    let low = 0, high = index.texts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (index.texts[middle][0] <= item) low = middle; else high = middle - 1;
    }
    const [start, number] = index.texts[low];
    return (await block(number))[item - start];
  }

  function node(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  function figure(value) {
    if (value === null || value === undefined) return "–";
    return Number.isInteger(value) ? String(value) : Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(3);
  }

  // A long text is cut, with a button that shows the rest.
  function text(full) {
    if (full.length <= LONG) return [full];
    const part = document.createTextNode(`${full.slice(0, LONG)}… `);
    const more = node("button", { type: "button", onclick: () => { part.data = full; more.remove(); } },
      `Show all ${full.length.toLocaleString("en")} characters`);
    return [part, more];
  }

  function definitions(pairs) {
    const list = node("dl");
    for (const [name, value] of pairs) {
      if (value === "" || value === null || value === undefined) continue;
      list.append(node("dt", {}, name), node("dd", { dir: "auto" }, ...text(typeof value === "string" ? value : JSON.stringify(value))));
    }
    return list;
  }

  function provenance(source) {
    const names = { bot: "Bot", checkpoint: "Checkpoint", settings: "Settings", seed: "Seed", version: "Version" };
    return node("details", {}, node("summary", {}, "Provenance"),
      definitions(Object.entries(source).map(([name, value]) => [names[name] ?? name, value])));
  }

  function bubble([speaker, said, role, source], first) {
    const label = role === "reference" ? "reference" : role === "reply" ? `${speaker}, judged` : role ? `${speaker}, judged` : speaker;
    const side = role === "reference" ? "reference" : speaker === first ? "left" : "right";
    return node("div", { class: `turn ${side}${role === "judged" || role === "reply" ? " judged" : ""}`, dir: "auto" },
      node("small", {}, label), ...text(said), source ? provenance(source) : null);
  }

  function contents(view) {
    const parts = [];
    if (view.t) parts.push(node("div", { class: "conversation" }, ...view.t.map((turn) => bubble(turn, view.t[0][0]))));
    if (view.c) {
      const list = node("ol", { class: "candidates" });
      for (const [said, truth, about] of view.c) {
        list.append(node("li", truth ? { class: "truth", dir: "auto" } : { dir: "auto" }, ...text(said), truth ? " (the true reply)" : "", about ? ` (${about})` : ""));
      }
      parts.push(node("details", { open: view.c.length <= 5 }, node("summary", {}, `${view.c.length} candidates`), list));
    }
    if (view.f) parts.push(definitions(view.f));
    return parts;
  }

  function snippet(view) {
    const turns = (view && view.t) || [];
    const chosen = turns.findLast((turn) => turn[2] === "reply") ?? turns.findLast((turn) => turn[2] !== "reference") ?? turns.at(-1);
    return chosen ? chosen[1].slice(0, 200) : "";
  }

  function histogram(values) {
    const known = values.filter((value) => value !== null);
    const low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
    if (known.length < 2 || low === high) return null;
    const bins = new Array(24).fill(0);
    for (const value of known) bins[Math.min(23, Math.floor(24 * (value - low) / (high - low)))] += 1;
    const most = Math.max(...bins);
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const name = `${known.length} values from ${figure(low)} to ${figure(high)}`;
    for (const [key, value] of Object.entries({ viewBox: "0 0 240 50", preserveAspectRatio: "none", class: "histogram", role: "img", "aria-label": `Histogram of ${name}` })) svg.setAttribute(key, value);
    bins.forEach((count, i) => {
      const bar = document.createElementNS(space, "rect");
      const height = count ? Math.max(1, 50 * count / most) : 0;
      for (const [key, value] of Object.entries({ x: 10 * i, y: 50 - height, width: 9, height })) bar.setAttribute(key, value);
      svg.append(bar);
    });
    return node("div", {}, svg, node("p", { class: "quiet" }, name));
  }

  function csv(rows) {
    const safe = (value) => {
      const cell = String(value ?? "");
      const shown = typeof value !== "number" && /^\s*[=+\-@\t\r\n＝＋－＠]/.test(cell) ? `'${cell}` : cell;
      return `"${shown.replaceAll('"', '""')}"`;
    };
    return rows.map((row) => row.map(safe).join(",")).join("\r\n");
  }

  function save(name, content) {
    const address = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
    node("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  const dialog = node("dialog", { "aria-labelledby": "cell-title" });
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));

  async function open(number) {
    const cell = index.cells[number];
    if (!cell) return;
    history.replaceState(null, "", `#cell-${number}`);
    dialog.replaceChildren(
      node("h2", { id: "cell-title" }, `${cell.subject}: ${cell.metric}`),
      node("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close"),
      node("p", { role: "status" }, "Unpacking…"),
    );
    if (!dialog.open) dialog.showModal();
    try {
      const [units, values] = await Promise.all([block(cell.units), block(cell.block)]);
      show(cell, units, values);
    } catch (error) {
      dialog.querySelector("[role=status]").textContent = typeof DecompressionStream === "undefined"
        ? "This browser cannot unpack the data of the report; use a newer one." : `The data cannot be read: ${error.message}`;
    }
  }

  function show(cell, { units, clusters, items }, { values, weights }) {
    let order = "lowest", query = "", page = 0, turn = 0, rows = [];
    const interval = cell.low === null ? "" : ` [${figure(cell.low)}, ${figure(cell.high)}]`;
    const status = node("p", { role: "status", class: "quiet" });
    const list = node("ul", { class: "units" });
    const before = node("button", { type: "button", onclick: () => { page -= 1; render(); } }, "Back");
    const next = node("button", { type: "button", onclick: () => { page += 1; render(); } }, "Next");
    const search = node("input", { type: "search", autocomplete: "off" });
    const choice = node("select", {}, ...[["lowest", "Lowest first"], ["highest", "Highest first"], ["given", "As judged"]]
      .map(([value, name]) => node("option", { value }, name)));
    search.addEventListener("input", () => { query = search.value.trim().toLowerCase(); page = 0; choose(); });
    choice.addEventListener("change", () => { order = choice.value; page = 0; choose(); });

    const found = async (i) => {
      if (units[i].toLowerCase().includes(query) || clusters[i].toLowerCase().includes(query)) return true;
      const view = await texts(items[i]);
      return Boolean(view) && JSON.stringify(Object.values(view)).toLowerCase().includes(query);
    };

    async function choose() {
      const mine = ++turn;
      let chosen = units.map((_, i) => i);
      if (query) {
        status.textContent = "Searching…";
        const kept = [];
        for (const i of chosen) {
          if (await found(i)) kept.push(i);
          if (mine !== turn) return;
        }
        chosen = kept;
      }
      const value = (i) => values[i] ?? NaN;
      const sign = order === "highest" ? -1 : 1;
      if (order !== "given") chosen.sort((a, b) => (Number.isNaN(value(a)) - Number.isNaN(value(b))) || sign * (value(a) - value(b)) || a - b);
      rows = chosen;
      await render();
    }

    async function render() {
      const mine = turn;
      const start = page * PAGE, shown = rows.slice(start, start + PAGE);
      const views = await Promise.all(shown.map((i) => texts(items[i])));
      if (mine !== turn) return;
      list.replaceChildren(...shown.map((i, k) => unit(i, views[k])));
      status.textContent = rows.length ? `${start + 1} to ${start + shown.length} of ${rows.length}` : "Nothing found.";
      before.disabled = page === 0;
      next.disabled = start + PAGE >= rows.length;
    }

    function unit(i, view) {
      const weight = weights.length ? ` / ${figure(weights[i])}` : "";
      const box = node("details", {}, node("summary", {},
        node("span", { class: "value" }, figure(values[i]) + weight),
        node("span", { class: "snippet", dir: "auto" }, snippet(view)),
        node("span", { class: "name" }, units[i])));
      box.addEventListener("toggle", () => {
        if (!box.open || box.children.length > 1) return;
        box.append(...(view ? contents(view) : [node("p", { class: "quiet" }, "The run has no texts of this unit.")]),
          definitions([["Unit", units[i]], ["Cluster", clusters[i]], ["Value", String(values[i] ?? "none")]]));
      });
      return node("li", {}, box);
    }

    async function download() {
      const lines = [["unit", "cluster", "value", ...(weights.length ? ["weight"] : []), "text"]];
      for (const i of rows) {
        const view = await texts(items[i]);
        const said = ((view && view.t) || []).map(([speaker, words]) => `${speaker}: ${words}`).join("\n");
        lines.push([units[i], clusters[i], values[i], ...(weights.length ? [weights[i]] : []), said]);
      }
      save("units.csv", csv(lines));
    }

    dialog.replaceChildren(...[
      node("h2", { id: "cell-title" }, `${cell.subject}: ${cell.metric}`),
      node("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close"),
      definitions([
        ["Setting", cell.setting], ["Figure", `${figure(cell.value)}${interval}, n = ${cell.n}`],
        ["Metric", [cell.summary, cell.citation].filter(Boolean).join(" — ")],
        ["Reduced by", cell.reduction], ["Bot", cell.spec], ["Kind", cell.kind], ["Checkpoint", cell.fingerprint],
      ]),
      histogram(values),
      node("div", { class: "controls" },
        node("label", {}, "Search texts and ids", search), node("label", {}, "Order", choice),
        node("button", { type: "button", onclick: download }, "CSV of these units")),
      status, list, node("div", { class: "bar" }, before, next),
    ].filter((part) => part !== null));
    dialog.querySelector(".close").focus();
    choose();
  }

  // Paper does not scroll: a table that is too wide for it is made smaller. 1030 pixels are a landscape page, and fonts
  // on paper are .72 of those on the screen.
  addEventListener("beforeprint", () => {
    const scale = matchMedia("print").matches ? 1 : 0.72;
    for (const table of document.querySelectorAll(".wide > table")) table.style.zoom = Math.min(1, 1030 / (scale * table.offsetWidth));
  });
  addEventListener("afterprint", () => {
    for (const table of document.querySelectorAll(".wide > table")) table.style.zoom = "";
  });

  document.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-cell]");
    if (cell) open(Number(cell.dataset.cell));
  });
  const asked = /^#cell-(\d+)$/.exec(location.hash);
  if (asked) open(Number(asked[1]));
  document.documentElement.dataset.ready = "yes";
})();
