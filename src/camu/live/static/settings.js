// All settings of the page: schemes, the main settings with sliders, and the rest by section.
import { element, find, number } from "./dom.js";
import { withSetting } from "./state.js";

const short = (value) => (typeof value === "number" && Math.abs(value) >= 1e6 ? `${Number((value / 1e9).toPrecision(6))}e9` : String(value));

const words = (value) => (value === null || value === undefined ? "" : Array.isArray(value) ? value.map(short).join(", ") : short(value));

// What a reader typed, as a value of the configuration; text that is no number stays text, so that
// the server can say what it accepts.
export function parse(control, text) {
  const typed = text.trim();
  if (typed === "" && control.optional) return null;
  if (control.type === "array") return typed.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (control.type === "integer" || control.type === "number") {
    const value = Number(typed);
    return typed === "" || Number.isNaN(value) ? typed : value;
  }
  return typed;
}

// A slider has 1000 steps; a logarithmic one moves by factors.
const STEPS = 1000;
export const toSlider = (span, value) => {
  const [low, high, now] = span.log ? [span.low, span.high, Math.max(value, span.low)].map(Math.log) : [span.low, span.high, value];
  return Math.round(STEPS * Math.min(Math.max((now - low) / (high - low), 0), 1));
};
export const fromSlider = (span, place, whole) => {
  const share = place / STEPS;
  const value = span.log ? span.low * (span.high / span.low) ** share : span.low + share * (span.high - span.low);
  return whole ? Math.round(value) : Number(value.toPrecision(4));
};

export class Field {
  // `on` has input(key, value) while a reader moves it, and done() when it rests.
  constructor(control, on, prefix = "field") {
    this.control = control;
    this.on = on;
    this.id = `${prefix}-${control.key}`;
    this.sliders = [];
    this.input = this.makeInput();
    const unit = control.unit ? ` (${control.unit})` : "";
    const name = control.name ?? control.key;
    this.label = element("label", { for: this.id, title: control.key }, name + unit);
    this.was = element("span", { class: "was" });
    this.fault = element("p", { class: "fault", id: `fault-${this.id}`, role: "alert" });
    const help = element("p", { class: "help", id: `help-${this.id}` }, control.text.replaceAll("`", ""));
    this.input.setAttribute("aria-describedby", `help-${this.id} fault-${this.id}`);
    if (control.slider) this.makeSliders();
    this.node = element("div", { class: "field", "data-key": control.key },
      element("div", { class: "line" }, this.label, this.was), element("div", { class: "line" }, this.sliders, this.input), help, this.fault);
  }

  makeInput() {
    const { control } = this;
    if (control.type === "choice") {
      const select = element("select", { id: this.id }, control.choices.map((name) => element("option", { value: name }, name)));
      select.addEventListener("change", () => this.give(select.value));
      return select;
    }
    if (control.type === "boolean") {
      const box = element("input", { type: "checkbox", id: this.id });
      box.addEventListener("change", () => this.give(box.checked));
      return box;
    }
    const numeric = control.type === "integer" || control.type === "number";
    const input = element("input", { type: "text", id: this.id, inputmode: numeric ? "decimal" : null, placeholder: control.optional ? "unset" : null, autocomplete: "off", spellcheck: "false" });
    input.addEventListener("change", () => this.give(parse(control, input.value)));
    return input;
  }

  makeSliders() {
    const { control } = this;
    const span = control.slider;
    const pair = control.type === "array" ? ["lowest", "highest"] : [""];
    this.sliders = pair.map((end) => element("input", { type: "range", min: 0, max: STEPS, "aria-label": `${control.name ?? control.key} ${end}`.trim() }));
    this.sliders.forEach((slider, index) => {
      slider.addEventListener("input", () => {
        const value = fromSlider(span, Number(slider.value), control.type === "integer");
        this.on.input(control.key, control.type === "array" ? this.pair(index, value) : value);
      });
      slider.addEventListener("change", () => this.on.done());
    });
  }

  // Two ends that never cross.
  pair(index, value) {
    const [low, high] = this.value;
    return index === 0 ? [value, Math.max(value, high)] : [Math.min(low, value), value];
  }

  give(value) {
    this.on.input(this.control.key, value);
    this.on.done();
  }

  // The value in force, whether it differs from the server's, and what stands in where it is unset.
  show(value, before, standIn = null) {
    this.value = value;
    const { control } = this;
    if (control.type === "boolean") this.input.checked = value === true;
    else if (document.activeElement !== this.input) this.input.value = words(value);
    if (control.type !== "boolean" && value === null && standIn !== null) this.input.placeholder = `unset: ${number(standIn, 3)}`;
    const numbers = Array.isArray(value) ? value : [value ?? standIn ?? control.slider?.low];
    this.sliders.forEach((slider, index) => {
      if (document.activeElement !== slider || !slider.matches(":active")) slider.value = toSlider(control.slider, Number(numbers[index]));
      slider.setAttribute("aria-valuetext", number(Number(numbers[index])) + (control.unit ? ` ${control.unit}` : ""));
    });
    const changed = before !== undefined && JSON.stringify(before) !== JSON.stringify(value);
    this.node.classList.toggle("changed", changed);
    this.was.textContent = changed ? `was ${words(before) || "unset"}` : "";
  }

  complain(text) {
    this.fault.textContent = text;
    this.node.classList.toggle("wrong", text !== "");
    this.input.setAttribute("aria-invalid", text !== "");
  }
}

export class Settings {
  constructor(about, store) {
    this.about = about;
    this.store = store;
    this.base = about.base;
    this.fields = new Map();
    this.parameters = new Map();
    const on = { input: (key, value) => this.set(key, value), done: () => store.commit() };
    this.on = on;
    const rest = new Map();
    for (const control of about.controls) {
      const field = new Field(control, on);
      this.fields.set(control.key, field);
      if (control.training) find("train-fields").append(field.node);
      else if (control.slider || control.main) find("main-controls").append(field.node);
      else rest.set(control.section, [...(rest.get(control.section) ?? []), field]);
    }
    for (const [section, fields] of rest) {
      find("all-controls").append(element("fieldset", {}, element("legend", {}, `${section}: ${fields[0].control.about}`), fields.map((field) => field.node)));
    }
    this.own = element("fieldset", { id: "parameters" }, element("legend", {}, "parameters of the schemes"));
    find("main-controls").append(this.own);
    this.makeSchemes();
  }

  // A folded part for each family, in which names are sorted; parts with a chosen scheme are open.
  makeSchemes() {
    this.families = [...new Set(this.about.schemes.map((scheme) => scheme.family))].map((name) => {
      const own = this.about.schemes.filter((scheme) => scheme.family === name).sort((a, b) => a.name.localeCompare(b.name));
      const schemes = own.map((scheme) => this.makeScheme(scheme));
      const part = element("details", { class: "family" }, element("summary", {}, `${name} (${own.length})`), schemes.map((one) => one.label));
      return { part, schemes };
    });
    this.boxes = this.families.flatMap(({ schemes }) => schemes.map((one) => one.box));
    find("schemes").append(...this.families.map(({ part }) => part));
    find("scheme-search").addEventListener("input", (event) => this.searchSchemes(event.target.value.trim().toLowerCase()));
  }

  makeScheme({ name, sentence }) {
    const box = element("input", { type: "checkbox", value: name });
    box.addEventListener("change", () => this.choose());
    const label = element("label", { class: "scheme", title: sentence }, box, ` ${name}`);
    return { box, label, text: `${name} ${sentence}`.toLowerCase() };
  }

  // Only what has the text, and the families that have it, unfolded; without a text all, as chosen.
  searchSchemes(text) {
    for (const { part, schemes } of this.families) {
      for (const one of schemes) one.label.hidden = !one.text.includes(text);
      part.hidden = schemes.every((one) => one.label.hidden);
      part.open = text ? !part.hidden : schemes.some((one) => one.box.checked);
    }
  }

  choose() {
    const chosen = this.boxes.filter((box) => box.checked).map((box) => box.value);
    if (chosen.length && chosen.length <= 6) this.store.step({ ...this.store.now, schemes: chosen, changes: this.changesOf(chosen) });
    else this.showSchemes(this.store.now.schemes);
  }

  // The changes without parameters that none of these schemes has.
  changesOf(names) {
    const schemes = this.about.schemes.filter((scheme) => names.includes(scheme.name));
    const known = new Set(schemes.flatMap((scheme) => Object.keys(scheme.parameters).map((name) => `scheme.parameters.${name}`)));
    const kept = ([key]) => !key.startsWith("scheme.parameters.") || known.has(key);
    return Object.fromEntries(Object.entries(this.store.now.changes).filter(kept));
  }

  set(key, value) {
    this.store.update(withSetting(this.store.now, key, value, this.base[key]));
  }

  showSchemes(names) {
    for (const { part, schemes } of this.families) {
      for (const { box } of schemes) box.checked = names.includes(box.value);
      if (schemes.some(({ box }) => box.checked)) part.open = true;
    }
    const wanted = this.about.schemes.filter((scheme) => names.includes(scheme.name));
    const needed = new Map(wanted.flatMap((scheme) => Object.entries(scheme.parameters)));
    for (const [name, field] of this.parameters) {
      if (!needed.has(name)) {
        field.node.remove();
        this.parameters.delete(name);
      }
    }
    for (const [name, value] of needed) {
      if (this.parameters.has(name)) continue;
      const key = `scheme.parameters.${name}`;
      const type = typeof value === "boolean" ? "boolean" : typeof value === "number" ? "number" : "string";
      const users = wanted.filter((scheme) => Object.hasOwn(scheme.parameters, name)).map((scheme) => scheme.name);
      const text = `Of ${users.join(", ")}; ${value} where it is not set.`;
      const field = new Field({ key, name, type, choices: [], optional: true, unit: "", text, usual: value, ...this.about.sliders[name] }, this.on);
      this.parameters.set(name, field);
      this.own.append(field.node);
    }
    this.own.hidden = !this.parameters.size;
  }

  // `values` are those in force, `before` the changes of the state before the last step.
  show(state, before, standIns) {
    this.showSchemes(state.schemes);
    const most = this.fields.get("data.noniid_devices")?.control.slider;
    if (most) most.high = standIns["data.noniid_devices"] ?? most.high;
    const value = (changes, key) => (Object.hasOwn(changes, key) ? changes[key] : this.base[key]);
    for (const [key, field] of this.fields) {
      field.show(value(state.changes, key), before ? value(before.changes, key) : undefined, standIns[key] ?? null);
    }
    for (const [name, field] of this.parameters) {
      const key = `scheme.parameters.${name}`;
      const was = before ? before.changes[key] ?? null : undefined;
      field.show(state.changes[key] ?? null, was, field.control.slider ? field.control.usual : null);
    }
  }

  // Each sentence beside its field; those of no field are returned.
  complain(faults) {
    const left = [];
    const all = [...this.fields.values(), ...this.parameters.values()];
    for (const field of all) field.complain("");
    find("fault-scheme.name").textContent = "";
    for (const { key, text } of faults) {
      const parameter = [...this.parameters].find(([name]) => new RegExp(`scheme\\.parameters\\.${name}\\b`).test(text));
      const field = parameter ? parameter[1] : this.fields.get(key);
      if (field) {
        field.complain(text);
        const folded = field.node.closest("details");
        if (folded) folded.open = true;
      } else if (key === "scheme.name") {
        find("fault-scheme.name").textContent = text;
      } else {
        left.push(text);
      }
    }
    return left;
  }
}
