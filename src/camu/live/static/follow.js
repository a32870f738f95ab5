// Follows runs that go on elsewhere: a table of them, their scores, and the map of one.
import { Stream, get, post } from "./api.js";
import { Chart, startTheme } from "./charts.js";
import { element, fillTable, find, number } from "./dom.js";
import { FleetMap } from "./map.js";
import { curves, extend, judged, lastScore, scoreName, troubles } from "./training.js";

const MOST_CURVES = 12;
const MOST_ROWS = 100;
const ORDER = ["running", "no news", "waiting", "finished"];

// Those that go on first; a digest at the end of a name says nothing to a reader.
export const ordered = (runs) => [...runs].sort(([, a], [, b]) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));

export function brief(names) {
  const short = names.map((name) => name.replace(/-[0-9a-f]{16}$/, ""));
  return new Set(short).size === names.length ? short : names;
}

// Names without what they have in common at their start, for a legend.
export function distinct(names) {
  let same = names.length > 1 ? names[0].length : 0;
  for (const name of names) while (!name.startsWith(names[0].slice(0, same))) same -= 1;
  const cut = Math.max(names[0].lastIndexOf("/", same - 1), names[0].lastIndexOf("-", same - 1)) + 1;
  return names.map((name) => name.slice(same ? cut : 0));
}

// Seconds as people say them.
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  for (const [name, length] of [["h", 3600], ["min", 60]]) {
    if (seconds >= 1.5 * length) return `${(seconds / length).toFixed(1)} ${name}`;
  }
  return `${Math.round(seconds)} s`;
}

// A run that has to spend more than its rounds do goes on beyond them.
export const place = (round, rounds) => (round > rounds ? `${round}, ${rounds} or more` : `${round} of ${rounds}`);

class Follow {
  constructor(about) {
    this.about = about;
    this.runs = new Map();
    this.chart = new Chart(find("chart-accuracy"), about);
    this.total = 0;
    find("axis").addEventListener("change", () => this.draw());
    find("follow-run").addEventListener("change", () => this.drawMap());
    startTheme(() => this.chart.redraw());
    this.stream = new Stream("follow/events", () => { this.runs = new Map(); }, (news) => this.take(news));
  }

  take(news) {
    for (const [name, more] of Object.entries(news.runs ?? {})) {
      const known = this.runs.get(name) ?? { points: [], devices: null, sha: null };
      this.runs.set(name, { ...extend(known, more), about: more.about, nodes: more.nodes, state: more.state, eta: more.eta_seconds, quiet: more.quiet_seconds });
    }
    this.total = news.total ?? this.total;
    this.draw();
    document.documentElement.dataset.state = "ready";
  }

  draw() {
    const all = ordered(this.runs);
    const short = brief(all.map(([name]) => name));
    all.forEach(([, run], index) => { run.short = short[index]; });
    this.drawTable(all);
    const done = all.filter(([, run]) => run.state === "finished").length;
    const left = Math.max(0, ...all.map(([, run]) => run.eta ?? 0));
    find("lead").textContent = `Following ${this.about.follow}: ${this.total} runs, ${done} finished${left ? `; those that go on need about ${duration(left)} more` : ""}.`;
    const notes = [];
    if (this.total > all.length) notes.push(`The latest ${all.length} runs are read.`);
    if (all.length > MOST_ROWS) notes.push(`The table shows the first ${MOST_ROWS}.`);
    const score = judged(all.map(([, run]) => run));
    const alike = all.filter(([, run]) => !run.score || run.score.name === score.name);
    if (alike.length < all.length) notes.push(`The chart shows the runs that are judged by ${score.name}.`);
    if (alike.length > MOST_CURVES) notes.push(`The chart shows the first ${MOST_CURVES} of these runs.`);
    if (score) find("accuracy-title").textContent = score.name[0].toUpperCase() + score.name.slice(1);
    find("follow-note").textContent = this.total ? notes.join(" ") : "There is no run here yet; the page waits for one.";
    this.offer(all);
    this.drawCurves(alike.slice(0, MOST_CURVES));
  }

  drawTable(all) {
    const nodes = all.some(([, run]) => run.nodes !== null);
    const score = scoreName(all.map(([, run]) => run));
    const rows = all.slice(0, MOST_ROWS).map(([name, run]) => {
      const last = run.points.at(-1);
      const faults = {};
      for (const point of run.points) for (const [kind, count] of Object.entries(point.faults)) faults[kind] = (faults[kind] ?? 0) + count;
      const state = run.state === "no news" ? `no news for ${duration(run.quiet)}` : run.state;
      return [element("span", { title: name }, run.short), run.about.scheme, run.about.seed, state, place(last?.round ?? 0, run.about.rounds), duration(run.eta),
        lastScore(run, score), number(last?.joules), number(last?.megabytes), ...(nodes ? [run.nodes ?? "–"] : []), last?.units ?? "–",
        troubles(faults, last?.empty)];
    });
    fillTable(find("follow-runs"), ["run", "scheme", "seed", "state", "round", "left", score, "joules", "megabytes", ...(nodes ? ["nodes"] : []), "units heard", "faults"], rows);
  }

  drawCurves(all) {
    const those = all.map(([, run]) => run).filter((run) => run.points.length);
    if (!those.length) return;
    const names = distinct(those.map((run) => run.short));
    const drawn = those.map((run, index) => ({ ...run, scheme: names[index] }));
    const { palette } = this.about;
    const axis = find("axis").value;
    find("chart-accuracy").dataset.points = drawn.reduce((sum, run) => sum + run.points.length, 0);
    this.chart.draw(`accuracy-${axis}`, { curves: curves(drawn, axis) }, {
      ...judged(drawn)?.marks,
      $schemes: drawn.map((run) => run.scheme),
      $colours: drawn.map((_, index) => palette[index % palette.length]),
      $dashes: drawn.map((_, index) => [[1, 0], [6, 3], [2, 2]][Math.floor(index / palette.length) % 3]),
    });
  }

  offer(all) {
    const select = find("follow-run");
    if (select.options.length === all.length) return;
    const before = select.value;
    select.replaceChildren(...all.map(([name, run]) => new Option(run.short, name)));
    if (this.runs.has(before)) select.value = before;
    else this.drawMap();
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
    new FleetMap(card, `Map of ${name}`, null).draw(plan.world, plan.units, new Set(), null, this.runs.get(name)?.devices ?? null);
  }
}

if (document.getElementById("follow-runs")) new Follow(await get("about.json"));
