"use strict";
(() => {
  const table = document.getElementById("rows");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const shown = document.getElementById("shown");

  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value;
    if (text === undefined || text === "") return null;
    return cell.classList.contains("number") ? Number(text) : text.toLowerCase();
  };

  const sortBy = (header, column) => {
    const descending = header.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = rows.map((row) => [value(row, column), row]);
    keyed.sort(([a], [b]) => {
      // Missing values come last in either direction.
      if (a === null || b === null) return (a === null) - (b === null);
      const order = a < b ? -1 : a > b ? 1 : 0;
      return descending ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row));
  };

  Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => sortBy(header, column));
  });

  const filter = () => {
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) count += 1;
    }
    shown.textContent = `${count} of ${rows.length} rows`;
  };
  document.getElementById("filter").addEventListener("input", filter);
  document.getElementById("all").addEventListener("change", (event) => {
    table.classList.toggle("all", event.target.checked);
  });
  filter();
})();
