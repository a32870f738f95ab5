// Light or dark, and Vega charts that are made once and then only get new rows while they are in view.
import { find } from "./dom.js";

const system = window.matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

export const isDark = () => (chosen === null ? system.matches : chosen === "dark");

// A colour as it is seen best on the present ground.
export const shade = (value, shades) => (isDark() && Object.hasOwn(shades, value) ? shades[value] : value);

export function startTheme(changed) {
  const show = () => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    find("theme-name").textContent = isDark() ? "light" : "dark";
  };
  const turn = () => { show(); changed(); };
  find("theme").addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    turn();
  });
  system.addEventListener("change", turn);
  show();
}

// The chart with its markers replaced: a list that holds a marker alone becomes its values, and a
// marker that stands for a text becomes it.
export function filled(spec, values, coloured) {
  return JSON.parse(JSON.stringify(spec), (_, value) => {
    if (Array.isArray(value) && value.length === 1 && Array.isArray(values[value[0]])) return values[value[0]].map(coloured);
    return typeof value === "string" && typeof values[value] === "string" ? values[value] : coloured(value);
  });
}

export class Chart {
  constructor(place, about) {
    this.place = place;
    this.about = about;
    this.turn = Promise.resolve();
    this.made = null;
    this.stale = false; // rows wait until the chart comes into view
    this.seen = true;
    new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
      if (this.seen) this.refresh();
    }, { rootMargin: "150px" }).observe(place);
    window.addEventListener("beforeprint", () => this.refresh());
  }

  // Rows by table name; `marks` are the schemes with their colours and dashes. Drawn in turn.
  draw(key, tables, marks = {}, rows = 0) {
    this.last = [key, tables, marks, rows];
    this.stale = true;
    return this.seen || !this.made ? this.refresh() : this.turn;
  }

  refresh() {
    if (!this.stale) return this.turn;
    this.stale = false;
    const last = this.last;
    this.turn = this.turn.then(() => this.show(...last)).catch((error) => console.error(error));
    return this.turn;
  }

  redraw() {
    this.stale = this.last !== undefined;
    return this.refresh();
  }

  async show(key, tables, marks, rows) {
    const chart = this.about.charts[key];
    const height = chart.row_pixels ? Math.max(60, chart.row_pixels * rows) : 300;
    const wanted = JSON.stringify([key, marks, isDark(), this.place.clientWidth]);
    if (this.made?.wanted === wanted) {
      const { view } = this.made.result;
      for (const [name, values] of Object.entries(tables)) view.data(name, values);
      await view.height(height).runAsync();
      return;
    }
    this.made?.result.finalize();
    const spec = { ...filled(chart.spec, marks, (value) => shade(value, this.about.dark_shades)), height, autosize: { type: "fit-x", contains: "padding" } };
    spec.datasets = { ...spec.datasets, ...tables };
    const narrow = this.place.clientWidth < 560;
    const theme = this.about.themes[isDark() ? "dark" : "light"];
    const legend = { ...theme.legend, columns: narrow ? 2 : 4 };
    const result = await vegaEmbed(this.place, spec, {
      mode: "vega-lite",
      renderer: "svg",
      ast: true,
      config: { ...theme, background: "transparent", legend },
      tooltip: { theme: isDark() ? "dark" : "light" },
      actions: false,
    });
    globalThis.camuPoints?.start(this.place);
    this.made = { wanted, result };
  }

  async svg() {
    await this.refresh();
    return this.made ? this.made.result.view.toSVG() : null;
  }
}
