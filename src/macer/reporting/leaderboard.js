// Each column's title becomes a button that sorts the rows, the largest number first.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const titles = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  titles.forEach((title, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...title.childNodes);
    title.append(button);
    button.addEventListener("click", () => {
      const numbers = title.dataset.sort !== "text" && title.dataset.sort !== "rank";
      const before = title.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numbers;
      const value = (row) => row.cells[column].dataset.value;
      const order = (a, b) => {
        if (value(a) === "" || value(b) === "") return (value(a) === "") - (value(b) === "");
        const difference = title.dataset.sort === "text"
          ? value(a).localeCompare(value(b)) : value(a) - value(b);
        return down ? -difference : difference;
      };
      body.append(...[...body.rows].sort(order));
      titles.forEach((other) => other.removeAttribute("aria-sort"));
      title.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
}
