"use strict";
(() => {
  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a file may have no storage */ }
  });

  const names = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const value = (row, place) => {
    const cell = row.cells[place];
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    return cell.querySelector(".none") ? null : cell.textContent.trim();
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : names.compare(a, b));

  const ROWS_OF_PAGE = 50;
  const pager = (section, table) => {
    const bar = section.querySelector(".pager");
    const told = bar.querySelector("output");
    const [back, next, every] = bar.querySelectorAll("button");
    let kept = new Set(table.tBodies[0].rows);
    let at = 0;
    let whole = false;

    const show = () => {
      const rows = [...table.tBodies[0].rows];
      const chosen = rows.filter((row) => kept.has(row));
      const size = whole ? Math.max(chosen.length, 1) : ROWS_OF_PAGE;
      at = Math.max(0, Math.min(at, Math.ceil(chosen.length / size) - 1));
      const here = new Set(chosen.slice(at * size, (at + 1) * size));
      for (const row of rows) row.hidden = !here.has(row);
      bar.hidden = chosen.length <= ROWS_OF_PAGE;
      back.disabled = at === 0;
      next.disabled = (at + 1) * size >= chosen.length;
      every.textContent = whole ? `${ROWS_OF_PAGE} at a time` : "All rows";
      told.textContent = `${at * size + 1}–${Math.min((at + 1) * size, chosen.length)} of ${chosen.length}`;
    };
    const go = (step) => {
      at += step;
      show();
      section.scrollIntoView({ block: "start" });
      section.querySelector(".scroll").scrollTop = 0;
    };
    back.addEventListener("click", () => go(-1));
    next.addEventListener("click", () => go(1));
    every.addEventListener("click", () => { whole = !whole; go(-at); });
    return { show, keep: (rows) => { kept = rows; at = 0; show(); }, restart: () => { at = 0; show(); } };
  };

  const sortBy = (table, heading) => {
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const each of heading.parentNode.cells) each.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const place = heading.cellIndex;
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row, index) => ({ row, index, key: value(row, place) }));
    keyed.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.index - b.index;
      return (up ? compare(a.key, b.key) : compare(b.key, a.key)) || a.index - b.index;
    });
    body.append(...keyed.map((each) => each.row));
  };

  for (const section of document.querySelectorAll("section[data-table]")) {
    const table = section.querySelector("table");
    if (!table) continue;
    const rows = [...table.tBodies[0].rows];
    const paged = pager(section, table);
    for (const heading of table.tHead.rows[0].cells) {
      heading.querySelector("button").addEventListener("click", () => { sortBy(table, heading); paged.restart(); });
    }
    paged.show();
    const input = section.querySelector("input");
    if (!input) continue;
    const shown = section.querySelector(".shown");
    const chips = section.querySelector(".chips");
    const texts = new Map();
    const wanted = new Set();
    const statuses = (row) => new Set([...row.querySelectorAll(".status")].map((each) => each.textContent));

    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const need = words.filter((word) => word.length === 1 || !word.startsWith("-"));
      const avoid = words.filter((word) => word.length > 1 && word.startsWith("-")).map((word) => word.slice(1));
      const found = new Set();
      for (const row of rows) {
        if (words.length && !texts.has(row)) {
          texts.set(row, [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
        }
        const text = texts.get(row) ?? "";
        const keep = need.every((word) => text.includes(word)) && !avoid.some((word) => text.includes(word))
          && (!wanted.size || [...statuses(row)].some((status) => wanted.has(status)));
        if (keep) found.add(row);
      }
      paged.keep(found);
      const count = found.size;
      shown.textContent = count === rows.length ? `${rows.length} rows` : `${count} of ${rows.length} rows`;
    };

    input.addEventListener("input", filter);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; filter(); }
    });

    const counts = new Map();
    for (const row of rows) {
      for (const status of statuses(row)) counts.set(status, (counts.get(status) ?? 0) + 1);
    }
    if (counts.size > 1) {
      for (const [status, count] of [...counts].sort((a, b) => b[1] - a[1])) {
        const chip = document.createElement("button");
        chip.type = "button";
        chip.className = `s-${status}`;
        chip.textContent = `${status} ${count}`;
        chip.setAttribute("aria-pressed", "false");
        chip.addEventListener("click", () => {
          wanted.has(status) ? wanted.delete(status) : wanted.add(status);
          chip.setAttribute("aria-pressed", String(wanted.has(status)));
          filter();
        });
        chips.append(chip);
      }
    }
  }
})();
