// What changed between two plans: devices with another leader, and numbers with their difference.
import { element, number } from "./dom.js";

const leaders = (units) => {
  const found = new Map();
  for (const unit of units) for (const member of unit.members) found.set(member, unit.leader);
  return found;
};

// A cluster keeps its colour as long as it keeps its leader; new ones take colours that are free.
export function keepColours(before, units, palette) {
  const known = new Map((before ?? []).map((unit) => [unit.leader, unit.colour]));
  const kept = units.map((unit) => known.get(unit.leader));
  const free = palette.filter((colour) => !kept.includes(colour));
  let next = 0;
  return units.map((unit, index) => {
    if (kept[index]) return { ...unit, colour: kept[index] };
    const colours = free.length ? free : palette;
    return { ...unit, colour: colours[next++ % colours.length] };
  });
}

// Devices by number; none where the fleet itself is another one.
export function changedDevices(before, after, count) {
  if (!before || before.count !== count) return new Set();
  const was = leaders(before.units);
  return new Set([...leaders(after)].filter(([member, leader]) => was.get(member) !== leader).map(([member]) => member));
}

// A number with an arrow and the difference to what it was.
export function figure(value, before, digits = 4) {
  const text = number(value, digits);
  if (before === undefined || before === null || value === null || number(before, digits) === text) return text;
  const up = value > before;
  const change = before === 0 ? number(value - before, 3) : `${up ? "+" : ""}${number(100 * (value / before - 1), 3)} %`;
  return element("span", { class: "moved", title: `was ${number(before, digits)}` }, text, " ",
    element("span", { class: up ? "up" : "down" }, `${up ? "▲" : "▼"} ${change}`));
}
