"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", () => {
      const numbers = head.classList.contains("n");
      const was = head.getAttribute("aria-sort");
      const up = was ? was === "descending" : !numbers;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return numbers ? Number(cell.dataset.value ?? -1) : cell.textContent;
      };
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = key(a), y = key(b);
        const order = numbers ? x - y : x.localeCompare(y);
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
