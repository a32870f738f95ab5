// The numbers of a plan: tables, what changed since the last step, and the SNR matrix as a picture.
import { duration, element, energy, fillTable, find, number } from "./dom.js";

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
  if (value === "inf") return "for ever";
  const text = number(value, digits);
  if (before === undefined || before === null || value === null || number(before, digits) === text) return text;
  const up = value > before;
  const change = before === 0 ? number(value - before, 3) : `${up ? "+" : ""}${number(100 * (value / before - 1), 3)} %`;
  return element("span", { class: "moved", title: `was ${number(before, digits)}` }, text, " ",
    element("span", { class: up ? "up" : "down" }, `${up ? "▲" : "▼"} ${change}`));
}

const ROWS = [
  ["clusters", "clusters"],
  ["clusters with more than one update", "repeating"],
  ["local updates", "updates"],
  ["virtual seconds", "seconds"],
  ["joules", "joules"],
  ["joules computing", "compute_joules"],
  ["joules sending", "transmit_joules"],
  ["joules receiving", "receive_joules"],
  ["joules of idle power", "idle_joules"],
  ["megabytes sent", "megabytes"],
  ["days until the first battery is empty", "first_days_with"],
  ["the same without learning", "first_days_without"],
  ["days until half of the batteries are", "median_days_with"],
  ["the same without learning", "median_days_without"],
  ["objective of P1", "objective"],
  ["certified gap", "gap"],
  ["shadow price of a joule", "shadow_price"],
  ["all data sent once instead: seconds", "data_seconds"],
  ["all data sent once instead: joules", "data_joules"],
  ["all data sent once instead: megabytes", "data_megabytes"],
];

export function drawTotals(schemes, before) {
  const names = Object.keys(schemes);
  const rows = ROWS
    .filter(([, key]) => names.some((name) => schemes[name].totals[key] !== null))
    .map(([words, key]) => [words, ...names.map((name) => {
      const cell = figure(schemes[name].totals[key], before?.[name]?.totals[key]);
      return element("span", { id: `total-${name}-${key}`, "data-value": schemes[name].totals[key] ?? "" }, cell);
    })]);
  fillTable(find("totals"), ["", ...names], rows);
}

const MOST_ROWS = 60;

const lasting = (days) => (days === null ? "mains" : days === "inf" ? "for ever" : `${number(days, 3)} days`);

// All units, or the slowest where there are many.
const listed = (units) => (units.length <= MOST_ROWS ? [...units.keys()]
  : [...units.keys()].sort((a, b) => units[b].seconds - units[a].seconds).slice(0, MOST_ROWS));

export function drawUnits(world, units, before, days) {
  const known = new Map((before?.units ?? []).map((unit) => [unit.leader, unit]));
  const placed = world.devices.some((device) => device.region);
  const linked = units.some((unit) => unit.link !== "shannon");
  const rows = listed(units).map((index) => {
    const unit = units[index];
    const was = before && before.count === world.devices.length ? known.get(unit.leader) : null;
    const names = unit.members.map((k) => world.devices[k].id);
    return [
      element("span", {}, element("span", { class: "spot", style: `background:${unit.colour}` }), ` ${index}`),
      names.slice(0, 8).join(" ") + (names.length > 8 ? ` +${names.length - 8}` : ""),
      world.devices[unit.leader].id,
      ...(placed ? [world.devices[unit.leader].region] : []),
      ...(linked ? [unit.link] : []),
      figure(unit.updates, was?.updates),
      figure(unit.weight, was?.weight, 3),
      figure(unit.power_watts, was?.power_watts, 3),
      figure(unit.contribution, was?.contribution, 3),
      unit.gate === "one update" ? "no" : "allowed",
      figure(unit.seconds, was?.seconds, 3),
      figure(unit.joules, was?.joules, 3),
      ...(days ? [lasting(days.with[unit.leader])] : []),
    ];
  });
  fillTable(find("units"), ["cluster", "members", "leader", ...(placed ? ["place"] : []), ...(linked ? ["link"] : []), "updates", "weight", "power (W)", "theta", "extra updates", "seconds", "joules", ...(days ? ["leader's battery"] : [])], rows);
  const many = units.length > MOST_ROWS ? `The ${MOST_ROWS} slowest of ${units.length}, the slowest first; units.csv below has all.` : "";
  find("units-note").textContent = [many, days ? "Batteries last so long if every round costs what the first one does." : ""].filter(Boolean).join(" ");
}

export const headline = (scheme) =>
  `${scheme.totals.clusters} clusters, ${scheme.totals.repeating} with more than one local update; a round takes ` +
  `${duration(scheme.totals.seconds)} and ${energy(scheme.totals.joules)}`;

// The SNR matrix: bright cells are good links, devices ordered by cluster.
// Viridis at nine places, linear in between; safe for all common colour vision deficiencies.
const STOPS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

export function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, channel) => Math.round(value + (place - low) * (STOPS[low + 1][channel] - value)));
}

// Devices of the matrix, cluster by cluster.
export const order = (units, count) => units.flatMap((unit) => unit.members).filter((index) => index < count);

export class Snr {
  constructor(place) {
    this.canvas = element("canvas", { class: "snr" });
    this.words = element("p", { class: "note" });
    place.replaceChildren(this.canvas, this.words);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.legend());
  }

  draw(world, units) {
    this.matrix = world.snr_db;
    this.devices = world.devices;
    this.rows = order(units, this.matrix.length);
    const values = this.matrix.flat();
    this.low = Math.min(...values);
    this.high = Math.max(...values);
    const size = this.rows.length;
    this.canvas.width = this.canvas.height = size;
    const picture = new ImageData(size, size);
    const span = Math.max(this.high - this.low, 1e-9);
    this.rows.forEach((a, y) => this.rows.forEach((b, x) => {
      picture.data.set([...colour((this.matrix[a][b] - this.low) / span), 255], 4 * (y * size + x));
    }));
    this.canvas.getContext("2d").putImageData(picture, 0, 0);
    this.legend();
  }

  legend() {
    const part = this.devices.length > this.rows.length ? `; the first ${this.rows.length} of ${this.devices.length} devices` : "";
    this.words.textContent = `${this.low.toFixed(1)} dB (dark) to ${this.high.toFixed(1)} dB (bright)${part}`;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const cell = (offset, whole) => this.rows[Math.min(Math.floor(offset / whole * this.rows.length), this.rows.length - 1)];
    const [a, b] = [cell(event.offsetY, box.height), cell(event.offsetX, box.width)];
    if (a === undefined || b === undefined) return;
    const to = a === b ? "its base station" : this.devices[b].id;
    this.words.textContent = `${this.devices[a].id} to ${to}: ${this.matrix[a][b].toFixed(1)} dB`;
  }
}
