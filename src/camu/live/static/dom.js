// Builds elements. Text is always set as text, so that no name or setting can become markup.

export const find = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const element = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

export const shape = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

// Sets only the attributes that differ: most of a drawing stays as it is.
export function adjust(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

// A table of texts; a cell may be an element.
export function fillTable(table, head, rows) {
  const line = (cells, kind) => element("tr", {}, cells.map((cell, index) => {
    const name = cell === "" ? "td" : index === 0 ? "th" : kind; // an empty cell is no head
    const scope = name === "td" ? null : kind === "th" ? "col" : "row";
    return element(name, { scope, class: index ? "number" : null }, cell instanceof Node ? cell : String(cell));
  }));
  table.replaceChildren(
    element("thead", {}, line(head, "th")),
    element("tbody", {}, rows.map((cells) => line(cells, "td"))));
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(digits - 2);
  return String(Number(value.toPrecision(digits)));
}

// Seconds and joules as owners of large fleets say them.
export const duration = (seconds) => (seconds >= 7200 ? `${number(seconds / 3600, 3)} h` : `${number(seconds, 3)} s`);
export const energy = (joules) => (joules >= 1e5 ? `${number(joules / 3.6e6, 3)} kWh` : `${number(joules, 3)} J`);

// Hands a file to the reader.
export function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
