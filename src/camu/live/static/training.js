// Training: starts and steers it, and draws its rounds as they come.
import { Stream, get, post } from "./api.js";
import { element, fillTable, find, number } from "./dom.js";

const KEY = "camu-training"; // per tab: a reload goes on, another tab does not mix in

export const percent = (value) => (value === null || value === undefined ? "–" : `${number(100 * value, 4)} %`);

// What the first of some runs is judged by; the server sends it with the first rounds.
export const judged = (runs) => runs.find((run) => run.score)?.score;

// The head of a column of scores.
export const scoreName = (runs) => judged(runs)?.name ?? "score";

// The last score of a run; named where the column holds others too.
export function lastScore(run, column) {
  const last = run.points.findLast((point) => point.score !== null || point.blown);
  if (!last) return "–";
  const text = last.blown ? "blown up" : run.score?.share ? percent(last.score) : number(last.score);
  return run.score && run.score.name !== column ? `${run.score.name} ${text}` : text;
}

// Faults by kind and batteries that are empty, in words.
export const troubles = (faults, empty) => [
  ...Object.entries(faults).map(([kind, count]) => `${count} ${kind}`),
  ...(empty ? [`${empty} empty`] : []),
].join(", ") || "none";

const title = (one) => `${one.number}: ${one.schemes.map((name, index) => `${name} ${one.runs[index].state}`).join(", ")}`;

// The rows of the chart of scores.
export const curves = (runs, axis) => runs.flatMap((run) => run.points
  .map((point) => ({ ...point, x: axis === "rounds" ? point.round : point[axis] }))
  .filter((point) => point.score !== null && point.x !== null)
  .map((point) => ({ scheme: run.scheme, x: point.x, mean: point.score, n: 1, low: null, high: null })));

// What an event adds to what is known of the runs.
export function extend(run, news) {
  const points = news.again ? [] : run.points;
  return {
    ...run,
    points: news.points ? [...points, ...news.points] : points,
    score: news.score ?? run.score,
    devices: news.devices ?? run.devices,
    sha: news.weights_sha256 ?? run.sha,
  };
}

export class Training {
  constructor(chart, palette, store, drawn) {
    Object.assign(this, { chart, palette, store, drawn, number: null, runs: [], status: null, stream: null });
    find("train").addEventListener("click", () => this.begin());
    for (const verb of ["pause", "continue", "stop"]) {
      find(verb).addEventListener("click", () => this.steer(verb));
    }
    find("axis").addEventListener("change", () => this.draw());
    find("trainings").addEventListener("change", (event) => this.open(event.target.value === "" ? null : Number(event.target.value), true));
  }

  async start() {
    const all = await this.list();
    const kept = Number(sessionStorage.getItem(KEY));
    if (all.some((one) => one.number === kept)) this.open(kept, false);
    else this.show();
  }

  async list() {
    const all = await get("trainings");
    this.all = all;
    find("trainings").replaceChildren(new Option("none", ""), ...all.map((one) =>
      new Option(title(one), one.number)));
    find("trainings").value = this.number === null ? "" : String(this.number);
    return all;
  }

  async begin() {
    find("train").disabled = true;
    const answer = await post("train", this.store.now).catch((error) => ({ errors: [{ text: error.message }] }));
    find("train").disabled = false;
    find("train-fault").textContent = answer.errors ? answer.errors.map((one) => one.text).join(" ") : "";
    if (!answer.errors) {
      await this.open(answer.number, false);
      await this.list();
    }
  }

  async steer(verb) {
    await post(`trainings/${this.number}/${verb}`, {});
  }

  // `restore` takes over the settings of an earlier training.
  async open(which, restore) {
    this.stream?.close();
    this.number = which;
    this.runs = [];
    this.status = null;
    if (which === null) {
      sessionStorage.removeItem(KEY);
      this.show();
      return;
    }
    sessionStorage.setItem(KEY, String(which));
    const known = this.all?.find((one) => one.number === which);
    if (restore && known) this.store.step(known.state);
    this.stream = new Stream(`trainings/${which}/events`, () => { this.runs = []; }, (news) => this.take(news));
  }

  take(news) {
    if (news.status) {
      this.status = news.status;
      const option = [...find("trainings").options].find((one) => one.value === String(this.number));
      if (option) option.textContent = title(news.status);
      find("trainings").value = String(this.number);
    }
    if (this.status && !this.runs.length) this.runs = this.status.schemes.map((scheme) => ({ scheme, points: [], devices: null, sha: null }));
    for (const [index, more] of Object.entries(news.runs ?? {})) this.runs[index] = extend(this.runs[index], more);
    this.show();
  }

  is(...words) {
    return this.status?.runs.some((run) => words.includes(run.state)) ?? false;
  }

  show() {
    const over = this.status?.over ?? true;
    find("pause").disabled = !this.is("running", "waiting");
    find("continue").disabled = over || !this.is("paused", "failed") || this.is("running", "waiting", "stopping");
    find("stop").disabled = over || !this.is("running", "waiting", "paused", "failed");
    const failed = this.status?.runs.find((run) => run.state === "failed");
    find("train-fault").textContent = failed ? failed.error : "";
    const score = scoreName(this.runs);
    const rows = this.runs.map((run, index) => {
      const last = run.points.at(-1);
      const word = this.status.over && this.status.runs[index].state === "paused" ? "stopped" : this.status.runs[index].state;
      const { sha } = run;
      return [run.scheme, word, last ? last.round : 0, lastScore(run, score), number(last?.joules), number(last?.seconds), number(last?.megabytes),
        troubles(last?.faults ?? {}, last?.empty),
        element("code", { title: sha ?? "", "data-sha": sha ?? "" }, sha ? sha.slice(0, 12) : "–")];
    });
    fillTable(find("runs"), rows.length ? ["scheme", "state", "round", score, "joules", "virtual seconds", "megabytes", "faults", "weights"] : [], rows);
    find("seed-note").hidden = !rows.length;
    document.documentElement.dataset.training = this.status ? this.status.runs.map((run) => run.state).join(" ") : "";
    this.draw();
    this.drawn();
  }

  draw() {
    const place = find("chart-accuracy");
    place.hidden = !this.runs.some((run) => run.points.length);
    if (place.hidden) return;
    const names = this.runs.map((run) => run.scheme);
    const axis = find("axis").value;
    place.dataset.points = this.runs.reduce((sum, run) => sum + run.points.length, 0);
    this.chart.draw(`accuracy-${axis}`, { curves: curves(this.runs, axis) }, {
      ...judged(this.runs)?.marks,
      $schemes: names,
      $colours: names.map((_, index) => this.palette[index % this.palette.length]),
      $dashes: names.map((_, index) => [[1, 0], [6, 3], [2, 2]][index % 3]),
    });
  }

  // What the devices of a scheme have spent; null where it is not trained.
  ledger(scheme) {
    return this.runs.find((run) => run.scheme === scheme)?.devices ?? null;
  }
}
