// The page: asks for a plan whenever a setting or a device moves, and draws the answer everywhere.
import { Latest, get, post } from "./api.js";
import { Chart, shade, startTheme } from "./charts.js";
import { element, find } from "./dom.js";
import { Downloads } from "./download.js";
import { Snr, changedDevices, drawTotals, drawUnits, headline, keepColours } from "./figures.js";
import { FleetMap } from "./map.js";
import { Settings } from "./settings.js";
import { Store, addDevice, fresh, fromHash, moveDevice, moveStation, removeDevice, toHash } from "./state.js";
import { Training } from "./training.js";
import { View, search } from "./view.js";

const SLOW_MILLISECONDS = 500; // from then on the page says that it waits
const FEW_NOTES = 2; // more are folded
const CHARTS = ["timeline", "contribution", "labels"];
const root = document.documentElement;

class Page {
  constructor(about) {
    this.about = about;
    this.answer = null; // the last good plan
    this.before = null; // the plan and the state before the last step
    this.chosen = null;
    this.maps = new Map();
    this.view = new View(() => this.drawMaps());
    this.asked = performance.now();
    const first = fresh([about.base["scheme.name"], ...[about.beside].filter((name) => name !== about.base["scheme.name"])]);
    this.store = new Store(fromHash(location.hash) ?? first, (what) => this.changed(what));
    this.first = first;
    this.settings = new Settings(about, this.store);
    this.charts = Object.fromEntries(CHARTS.map((key) => [key, new Chart(find(`chart-${key}`), about)]));
    this.snr = new Snr(find("chart-snr"));
    this.accuracy = new Chart(find("chart-accuracy"), about);
    this.training = new Training(this.accuracy, about.palette, this.store, () => this.drawMaps());
    this.downloads = new Downloads(this.store, () => this.shown, () => this.training.number, this.accuracy);
    this.plans = new Latest((question, signal) => post("plan", question.state, signal), (answer, question, last) => this.received(answer, question, last));
    this.listen();
    startTheme(() => this.redraw());
  }

  get shown() {
    return find("shown").value || this.store.now.schemes[0];
  }

  listen() {
    find("undo").addEventListener("click", () => this.store.undo());
    find("redo").addEventListener("click", () => this.store.redo());
    find("reset").addEventListener("click", () => this.store.step(this.first));
    find("add").addEventListener("click", () => this.add());
    find("remove").addEventListener("click", () => this.remove(this.chosen));
    find("closer").addEventListener("click", () => this.zoom(2));
    find("farther").addEventListener("click", () => this.zoom(0.5));
    find("whole").addEventListener("click", () => this.view.whole());
    find("search").addEventListener("input", () => this.search(0));
    find("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.search(1);
    });
    find("shown").addEventListener("change", () => this.drawInside());
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches("input[type=text], textarea");
      if (typing || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
      event.preventDefault();
      if (event.shiftKey) this.store.redo();
      else this.store.undo();
    });
    window.addEventListener("hashchange", () => {
      const state = fromHash(location.hash);
      if (state) this.store.step(state);
    });
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth !== width) {
        width = window.innerWidth;
        this.redraw();
      }
    });
  }

  // Undo, settings and the address follow every change; a new plan is asked for.
  changed(what) {
    if (what === "begin") {
      this.before = { answer: this.answer, state: this.store.now };
      return;
    }
    if (what === "update") {
      this.asked = performance.now();
      this.plans.ask({ state: this.store.now, asked: this.asked });
      root.dataset.state = "busy";
      clearTimeout(this.slow);
      this.slow = setTimeout(() => root.classList.add("slow"), SLOW_MILLISECONDS);
    }
    const hash = toHash(this.store.now);
    if (hash !== location.hash && this.store.before === null) history.replaceState(null, "", hash);
    find("undo").disabled = !this.store.past.length;
    find("redo").disabled = !this.store.future.length;
    find("reset").disabled = JSON.stringify(this.store.now) === JSON.stringify(this.first);
    this.showControls();
    if (what === "commit" && this.answer) this.drawMaps();
  }

  showControls() {
    const standIns = {
      "allocation.energy_joules": this.answer?.schemes["camu-joint"]?.totals.spent_joules,
      "radio.noise_dbm": this.answer?.world.noise_dbm,
      "data.noniid_devices": this.answer?.world.devices.length,
      "clustering.count": this.answer?.schemes[this.shown]?.units.length,
    };
    this.settings.show(this.store.now, this.before?.state, standIns);
  }

  async received(answer, question, last) {
    const left = this.settings.complain(answer.errors);
    const lines = answer.errors.length ? [...left, ...(left.length ? [] : ["A setting is not possible; the plan shown is the last good one."])] : answer.warnings;
    this.say(lines, answer.errors.length > 0);
    root.dataset.plan = answer.errors.length ? "refused" : "good";
    if (!answer.errors.length) {
      for (const [name, scheme] of Object.entries(answer.schemes)) {
        scheme.units = keepColours(this.answer?.schemes[name]?.units, scheme.units, this.about.palette);
      }
      this.answer = answer;
      await this.draw();
      await new Promise((done) => requestAnimationFrame(done));
    }
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
    root.dataset.state = last ? "ready" : "busy";
    if (last) {
      clearTimeout(this.slow);
      root.classList.remove("slow");
    }
    document.dispatchEvent(new CustomEvent("camu:drawn", { detail: { milliseconds: performance.now() - question.asked, last } }));
  }

  // Errors and a few notes as they are; many notes are folded, and stay open once they were opened.
  say(lines, wrong) {
    const open = find("faults").querySelector("details")?.open ?? false;
    const texts = lines.map((text) => element("p", { class: wrong ? "fault card" : "warning card" }, text));
    const fold = !wrong && lines.length > FEW_NOTES;
    const folded = fold ? [element("details", { class: "card", open }, element("summary", {}, `${lines.length} notes on this fleet`), texts)] : texts;
    find("faults").replaceChildren(...folded);
  }

  async draw() {
    const { schemes } = this.answer;
    const names = Object.keys(schemes);
    const shown = this.shown;
    find("shown").replaceChildren(...names.map((name) => new Option(name, name)));
    find("shown").value = names.includes(shown) ? shown : names[0];
    find("lead").textContent = `${this.answer.world.devices.length} devices. ${find("shown").value}: ${headline(schemes[find("shown").value])}.`;
    this.showControls();
    this.drawMaps();
    drawTotals(schemes, this.before?.answer?.schemes);
    find("command").textContent = this.answer.commands;
    await this.drawInside();
  }

  drawMaps() {
    if (!this.answer) return;
    const { world, schemes } = this.answer;
    for (const [name, map] of this.maps) {
      if (schemes[name]) continue;
      map.svg.closest(".card").remove();
      this.maps.delete(name);
    }
    // All cards first: how wide a map is depends on how many there are.
    for (const name of Object.keys(schemes)) if (!this.maps.has(name)) this.addMap(name);
    for (const name of Object.keys(schemes)) {
      const units = this.coloured(schemes[name].units);
      const marks = changedDevices(this.past(name), units, world.devices.length);
      const ledger = this.training.ledger(name);
      const fits = ledger && ledger.joules.length === world.devices.length ? ledger : null;
      this.maps.get(name).draw(world, units, marks, this.chosen, fits, schemes[name].days);
    }
    find("remove").disabled = typeof this.chosen !== "number";
  }

  coloured(units) {
    return units.map((unit) => ({ ...unit, colour: shade(unit.colour, this.about.dark_shades) }));
  }

  past(name) {
    const units = this.before?.answer?.schemes[name]?.units;
    return units ? { units, count: this.before.answer.world.devices.length } : null;
  }

  addMap(name) {
    const card = element("div", { class: "card" }, element("h3", {}, name));
    find("maps").append(card);
    this.maps.set(name, new FleetMap(card, `Map of the fleet under ${name}`, {
      move: (what, x, y, id) => this.move(what, x, y, id),
      drop: () => this.store.commit(),
      choose: (what) => { this.chosen = what; this.drawMaps(); },
      add: (x, y) => this.add(x, y),
      remove: (index) => this.remove(index),
    }, this.view));
  }

  move(what, x, y, id) {
    if (!this.answer) return;
    const { world } = this.answer;
    const { now } = this.store;
    this.store.update(what === "station" ? moveStation(now, world, x, y) : moveDevice(now, world, what, x, y, id));
  }

  zoom(by) {
    const [map] = this.maps.values();
    const at = typeof this.chosen === "number" ? this.answer?.world.devices[this.chosen]?.at : null;
    if (map?.view) this.view.zoom(by, at, map.view);
  }

  // Choose the first device with this text in its id, or the one after the chosen one.
  search(further) {
    if (!this.answer) return;
    const { devices } = this.answer.world;
    const text = find("search").value;
    const all = search(devices, text);
    find("search-note").textContent = text.trim() ? `${all.length} found${all.length > 1 ? "; Enter: the next" : ""}` : "";
    if (!all.length) return;
    this.chosen = all[further ? (all.indexOf(this.chosen) + 1) % all.length : 0];
    const { at } = devices[this.chosen];
    if (at) this.view.show(at);
    else this.drawMaps();
  }

  add(x, y) {
    if (!this.answer) return;
    const { world, values } = this.answer;
    const placed = world.devices.filter((device) => device.at).map((device) => device.at);
    if (!placed.length) return;
    const middle = (axis) => placed.reduce((sum, at) => sum + at[axis], 0) / placed.length;
    this.chosen = world.devices.length;
    this.store.step(addDevice(this.store.now, world, values["fleet.regions"], x ?? middle(0), y ?? middle(1)));
  }

  remove(index) {
    if (typeof index !== "number" || !this.answer) return;
    const { world, values } = this.answer;
    this.chosen = null;
    this.store.step(removeDevice(this.store.now, world, values["fleet.regions"], index));
  }

  drawInside() {
    const name = find("shown").value;
    const { bars, tables, units, days } = this.answer.schemes[name];
    drawUnits(this.answer.world, this.coloured(units), this.past(name), days);
    this.snr.draw(this.answer.world, units);
    const rows = bars.length;
    const drawn = bars.map((index) => ({ ...units[index], members: undefined, cluster: String(index) }));
    return Promise.all([
      this.charts.timeline.draw("timeline", { timeline: tables.timeline }, {}, rows),
      this.charts.contribution.draw("contribution", { units: drawn, threshold: tables.threshold }, {}, rows),
      this.charts.labels.draw("labels", { labels: tables.labels }, {}, rows),
    ]);
  }

  redraw() {
    for (const chart of [...Object.values(this.charts), this.accuracy]) chart.redraw();
    this.drawMaps();
  }
}

const about = await get("about.json");
const page = new Page(about);
page.changed("update");
await page.training.start();
