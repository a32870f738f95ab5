// The tables of a plan: totals scheme by scheme, and the clusters of one scheme.
import { element, fillTable, find, number } from "./dom.js";
import { figure } from "./marks.js";

const ROWS = [
  ["clusters", "clusters"],
  ["clusters with more updates", "multi"],
  ["local updates", "updates"],
  ["virtual seconds", "seconds"],
  ["joules", "joules"],
  ["joules computing", "compute_joules"],
  ["joules sending", "transmit_joules"],
  ["objective of P1", "objective"],
  ["certified gap", "gap"],
  ["shadow price of a joule", "shadow_price"],
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

export function drawUnits(world, units, before) {
  const known = new Map((before?.units ?? []).map((unit) => [unit.leader, unit]));
  const rows = units.slice(0, MOST_ROWS).map((unit, index) => {
    const was = before && before.count === world.devices.length ? known.get(unit.leader) : null;
    const names = unit.members.map((k) => world.devices[k].id);
    return [
      element("span", {}, element("span", { class: "spot", style: `background:${unit.colour}` }), ` ${index}`),
      names.slice(0, 8).join(" ") + (names.length > 8 ? ` +${names.length - 8}` : ""),
      world.devices[unit.leader].id,
      figure(unit.updates, was?.updates),
      figure(unit.weight, was?.weight, 3),
      figure(unit.power_watts, was?.power_watts, 3),
      figure(unit.contribution, was?.contribution, 3),
      unit.multi ? "yes" : "no",
      figure(unit.seconds, was?.seconds, 3),
      figure(unit.joules, was?.joules, 3),
    ];
  });
  fillTable(find("units"), ["cluster", "members", "leader", "updates", "weight", "power (W)", "theta", "may repeat", "seconds", "joules"], rows);
  find("units-note").textContent = units.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${units.length}; units.csv below has all.` : "";
}

export const headline = (scheme) =>
  `${scheme.totals.clusters} clusters, ${scheme.totals.multi} of them may update repeatedly; a round takes ` +
  `${number(scheme.totals.seconds, 3)} s and ${number(scheme.totals.joules, 3)} J`;
