// Follows runs that go on elsewhere: a table of them, their accuracy, and the map of one.
import { get, post } from "./api.js";
import { Chart } from "./charts.js";
import { element, fillTable, find, number } from "./dom.js";
import { FleetMap } from "./map.js";
import { startTheme } from "./theme.js";
import { curves, extend, percent } from "./training.js";

const MOST_CURVES = 24;

// Seconds as people say them.
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  for (const [name, length] of [["h", 3600], ["min", 60]]) {
    if (seconds >= 1.5 * length) return `${(seconds / length).toFixed(1)} ${name}`;
  }
  return `${Math.round(seconds)} s`;
}

class Follow {
  constructor(about) {
    this.about = about;
    this.runs = new Map();
    this.chart = new Chart(find("chart-accuracy"), about);
    this.map = null;
    this.shown = null;
    find("axis").addEventListener("change", () => this.draw());
    find("follow-run").addEventListener("change", () => this.drawMap());
    startTheme(() => this.chart.redraw());
    this.source = new EventSource("follow/events");
    this.source.onopen = () => { this.runs = new Map(); };
    this.source.onmessage = (event) => this.take(JSON.parse(event.data));
  }

  take(news) {
    for (const [name, more] of Object.entries(news.runs)) {
      const known = this.runs.get(name) ?? { scheme: name, points: [], devices: null, summary: null };
      this.runs.set(name, { ...extend(known, more), about: more.about, state: more.state, eta: more.eta_seconds, quiet: more.quiet_seconds });
    }
    this.nodes = news.nodes;
    this.draw();
    document.documentElement.dataset.state = "ready";
  }

  draw() {
    const all = [...this.runs];
    const rows = all.map(([name, run]) => {
      const last = run.points.at(-1);
      const faults = {};
      for (const point of run.points) for (const [kind, count] of Object.entries(point.faults)) faults[kind] = (faults[kind] ?? 0) + count;
      const state = run.state === "no news" ? `no news for ${duration(run.quiet)}` : run.state;
      return [name, run.about.scheme, run.about.seed, state, `${last?.round ?? 0} of ${run.about.rounds}`, duration(run.eta),
        percent(run.points.findLast((point) => point.accuracy !== null)?.accuracy), number(last?.joules), last?.units ?? "–",
        Object.entries(faults).map(([kind, count]) => `${count} ${kind}`).join(", ") || "none"];
    });
    fillTable(find("follow-runs"), ["run", "scheme", "seed", "state", "round", "left", "accuracy", "joules", "units heard", "faults"], rows);
    const done = all.filter(([, run]) => run.state === "finished").length;
    const left = Math.max(0, ...all.map(([, run]) => run.eta ?? 0));
    const nodes = this.nodes === null || this.nodes === undefined ? "" : ` ${this.nodes} nodes have reported.`;
    find("lead").textContent = `Following ${this.about.follow}: ${all.length} runs, ${done} finished${left ? `, about ${duration(left)} left` : ""}.${nodes}`;
    find("follow-note").textContent = all.length > MOST_CURVES ? `The chart shows the first ${MOST_CURVES} runs.` : "";
    this.offer(all.map(([name]) => name));
    const drawn = all.slice(0, MOST_CURVES).map(([name, run]) => ({ ...run, scheme: name })).filter((run) => run.points.length);
    if (drawn.length) {
      const { palette } = this.about;
      const axis = find("axis").value;
      find("chart-accuracy").dataset.points = drawn.reduce((sum, run) => sum + run.points.length, 0);
      this.chart.draw(`accuracy-${axis}`, { curves: curves(drawn, axis) }, {
        $schemes: drawn.map((run) => run.scheme),
        $colours: drawn.map((_, index) => palette[index % palette.length]),
        $dashes: drawn.map((_, index) => [[1, 0], [6, 3], [2, 2]][Math.floor(index / palette.length) % 3]),
      });
    }
  }

  offer(names) {
    const select = find("follow-run");
    if (select.options.length === names.length) return;
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(before)) select.value = before;
    this.drawMap();
  }

  async drawMap() {
    const name = find("follow-run").value;
    if (!name) return;
    const plan = await post("follow/plan", { name });
    const card = element("div", { class: "card" });
    find("maps").replaceChildren(card);
    if (plan.errors) {
      card.append(element("p", { class: "note" }, plan.errors.map((one) => one.text).join(" ")));
      return;
    }
    this.map = new FleetMap(card, `Map of ${name}`, null);
    this.map.draw(plan.world, plan.units, new Set(), null, this.runs.get(name)?.devices ?? null);
  }
}

if (document.getElementById("follow-runs")) new Follow(await get("about.json"));
