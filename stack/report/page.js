"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("th")];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
        const order = a !== "" && !isNaN(a) && !isNaN(b) ? a - b : a.localeCompare(b);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
const filter = document.getElementById("filter");
const found = document.getElementById("found");
const parts = [...document.querySelectorAll("[data-part]")];
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const part of parts) {
    const text = part.textContent.toLowerCase();
    part.hidden = !words.every((word) => text.includes(word));
    shown += part.hidden ? 0 : 1;
  }
  found.textContent = words.length ? `${shown} of ${parts.length} entries` : "";
});
document.getElementById("tools").hidden = false;
