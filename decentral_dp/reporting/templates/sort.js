// Clicked, the head of a column sorts the rows: by the number that a cell carries, else by its text.
document.querySelectorAll("table.sortable").forEach(t => t.querySelectorAll("thead th").forEach((th, k) => {
  th.tabIndex = 0;
  const sort = () => {
    const up = th.getAttribute("aria-sort") !== "ascending", body = t.tBodies[0];
    const key = r => { const c = r.cells[k], v = c.dataset.sort; return v === undefined ? c.textContent : Number(v); };
    const worse = v => typeof v === "number" && Number.isNaN(v);
    const order = (a, b) => worse(a) || worse(b) ? worse(a) - worse(b)
      : (up ? 1 : -1) * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    [...body.rows].sort((r, s) => order(key(r), key(s))).forEach(r => body.append(r));
    t.querySelectorAll("thead th").forEach(h => h.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
  };
  th.addEventListener("click", sort);
  th.addEventListener("keydown", e => { if (e.key === "Enter") sort(); });
}));
