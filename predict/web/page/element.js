// Elements of the page. Text is only ever set as text.

const SVG = new Set(["svg", "line", "text", "path", "circle", "rect", "g"]);

/** An element with attributes and a text. */
export function element(name, attributes = {}, text) {
  const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Fills an element with a sentence: what stands between backticks is code. */
export function sentence(into, text) {
  const parts = text.split("`");
  // One that has no other is a letter like others.
  const pairs = parts.length % 2 === 1;
  into.replaceChildren(...(pairs ? parts.map((part, i) => (i % 2 ? element("code", {}, part) : part)) : [text]));
}

/** Fills a table: the first cell of a row is its header, a cell is a text or a node. A column named `-name` holds words. */
export function table(into, header, rows) {
  const head = element("tr");
  const title = text => (text.startsWith("-") ? element("th", { scope: "col", class: "words" }, text.slice(1)) : element("th", { scope: "col" }, text));
  head.append(...header.map(text => (text ? title(text) : element("td"))));
  const body = rows.map(cells => {
    const row = element("tr");
    row.append(...cells.map((cell, i) => {
      if (cell instanceof Node && ["TD", "TH"].includes(cell.nodeName)) return cell;
      const made = element(i ? "td" : "th", i ? {} : { scope: "row" });
      made.append(cell);
      return made;
    }));
    return row;
  });
  const [thead, tbody] = [element("thead"), element("tbody")];
  thead.append(head);
  tbody.append(...body);
  into.replaceChildren(thead, tbody);
  return body;
}

/** Notes under a title; nothing where there are none. `folded`: they are opened by whoever wants them. */
export function notes(into, title, list, folded = false) {
  into.replaceChildren();
  if (!list.length) return;
  const box = element(folded ? "details" : "div", { class: "notes" }), items = element("ul");
  items.append(...list.map(text => element("li", {}, text)));
  box.append(folded ? element("summary", {}, `${title} (${list.length})`) : element("h3", {}, title), items);
  into.append(box);
}

/** A cell with a bar of a share. */
export function bar(share, name) {
  const cell = element("td", { class: "bar" }), line = element("span", { class: name, "aria-hidden": "true" });
  line.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  cell.append(line);
  return cell;
}
