// All settings of the page: schemes, the sliders that matter most, and the rest by section.
import { element, find } from "./dom.js";
import { Field } from "./fields.js";
import { withSetting } from "./state.js";

export class Controls {
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
      else if (control.slider) find("main-controls").append(field.node);
      else rest.set(control.section, [...(rest.get(control.section) ?? []), field]);
    }
    for (const [section, fields] of rest) {
      find("all-controls").append(element("fieldset", {}, element("legend", {}, `${section}: ${fields[0].control.about}`), fields.map((field) => field.node)));
    }
    this.own = element("fieldset", { id: "parameters" }, element("legend", {}, "parameters of the schemes"));
    find("main-controls").append(this.own);
    this.makeSchemes();
  }

  makeSchemes() {
    this.boxes = this.about.schemes.map((scheme) => {
      const box = element("input", { type: "checkbox", value: scheme.name });
      box.addEventListener("change", () => this.choose());
      find("schemes").append(element("label", { class: "scheme", title: scheme.sentence }, box, ` ${scheme.name}`));
      return box;
    });
  }

  choose() {
    const chosen = this.boxes.filter((box) => box.checked).map((box) => box.value);
    if (chosen.length && chosen.length <= 6) this.store.step({ ...this.store.now, schemes: chosen });
    else this.showSchemes(this.store.now.schemes);
  }

  set(key, value) {
    this.store.update(withSetting(this.store.now, key, value, this.base[key]));
  }

  showSchemes(names) {
    for (const box of this.boxes) box.checked = names.includes(box.value);
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
      const field = new Field({ key, name, type, choices: [], optional: true, unit: "", text: `Of ${users.join(", ")}; ${value} where it is not set.` }, this.on);
      this.parameters.set(name, field);
      this.own.append(field.node);
    }
    this.own.hidden = !this.parameters.size;
  }

  // `values` are those in force, `before` the changes of the state before the last step.
  show(state, before, standIns) {
    this.showSchemes(state.schemes);
    const most = this.fields.get("data.noniid_devices").control.slider;
    most.high = standIns["data.noniid_devices"] ?? most.high;
    const value = (changes, key) => (Object.hasOwn(changes, key) ? changes[key] : this.base[key]);
    for (const [key, field] of this.fields) {
      field.show(value(state.changes, key), before ? value(before.changes, key) : undefined, standIns[key] ?? null);
    }
    for (const [name, field] of this.parameters) {
      const key = `scheme.parameters.${name}`;
      const was = before ? before.changes[key] ?? null : undefined;
      field.show(state.changes[key] ?? null, was);
    }
  }

  // Each sentence beside its field; those of no field are returned.
  complain(faults) {
    const left = [];
    const all = [...this.fields.values(), ...this.parameters.values()];
    for (const field of all) field.complain("");
    find("fault-scheme.name").textContent = "";
    for (const { key, text } of faults) {
      const parameter = [...this.parameters].find(([name]) => text.includes(`scheme.parameters.${name}`));
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
