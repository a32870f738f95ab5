// A map of the fleet as SVG: devices, leaders, links and the base station, moved by pointer and keys.
import { adjust, element, shape } from "./dom.js";

const HEIGHT = 330;
const MARGIN = 34;
const CROWD = 100; // devices from which on they are drawn small, without numbers
const STEP_METRES = 0.5;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

// Everything in view, y upwards; each axis has its own scale, so that a wide fleet fills the map.
export function frame(places, width, height) {
  const ends = (axis) => {
    const values = places.map((place) => place[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const more = Math.max(0, 1 - (high - low)) / 2;
    return [low - more, high + more];
  };
  const [[left, right], [bottom, top]] = [ends(0), ends(1)];
  const across = (width - 2 * MARGIN) / (right - left);
  const along = (height - 2 * MARGIN) / (top - bottom);
  return {
    ends: [[left, right], [bottom, top]],
    toPicture: ([x, y]) => [MARGIN + (x - left) * across, MARGIN + (top - y) * along],
    toMetres: ([px, py]) => [left + (px - MARGIN) / across, top - (py - MARGIN) / along],
  };
}

// Round places for ticks, about five.
export function ticks([low, high]) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(10)));
}

export class FleetMap {
  // `on` has move(what, x, y, id), drop(), choose(index), add(x, y) and remove(index); null: read only.
  constructor(place, label, on) {
    this.on = on;
    this.width = 0;
    this.nodes = [];
    this.links = [];
    this.dragged = null;
    this.view = null;
    this.grid = shape("g", { class: "ticks", "aria-hidden": "true" });
    this.net = shape("g", { class: "net" });
    this.crowd = shape("g", {});
    this.station = this.handle("station", () => "station"); // the one that moves
    this.station.append(...mast());
    this.fixed = shape("g", { class: "stations" });
    this.svg = shape("svg", { class: "map", role: "group", "aria-label": label, "aria-describedby": on ? "map-help" : null, height: HEIGHT },
      this.grid, this.net, this.fixed, this.station, this.crowd);
    this.tip = element("p", { class: "tip note", "aria-live": "off" }, "\u00a0");
    place.append(this.svg, this.tip);
    if (on) {
      this.svg.addEventListener("dblclick", (event) => {
        if (event.target === this.svg) on.add(...this.metres(event));
      });
    }
  }

  handle(kind, what) {
    const group = shape("g", { class: kind, role: this.on ? "button" : "img", tabindex: -1 });
    if (!this.on) return group;
    group.setAttribute("aria-roledescription", "movable");
    group.addEventListener("pointerdown", (event) => this.grab(event, group, what()));
    group.addEventListener("keydown", (event) => this.key(event, what()));
    group.addEventListener("focus", () => this.on.choose(what()));
    return group;
  }

  metres(event) {
    const box = this.svg.getBoundingClientRect();
    return this.view.toMetres([event.clientX - box.left, event.clientY - box.top]);
  }

  grab(event, group, what) {
    if (event.button !== 0) return;
    event.preventDefault();
    group.focus({ preventScroll: true });
    group.setPointerCapture(event.pointerId);
    this.dragged = what;
    // Its number may change while it is dragged: a device that reaches nobody is left out.
    const id = what === "station" ? null : this.world.devices[what].id;
    const move = (next) => {
      const [x, y] = this.metres(next);
      this.place(group, [x, y]);
      this.on.move(what, x, y, id);
    };
    const drop = () => {
      group.removeEventListener("pointermove", move);
      this.dragged = null;
      this.on.drop();
    };
    group.addEventListener("pointermove", move);
    group.addEventListener("lostpointercapture", drop, { once: true });
  }

  key(event, what) {
    const arrow = ARROWS[event.key];
    const count = this.nodes.length;
    if (arrow) {
      const step = STEP_METRES * (event.shiftKey ? 10 : 1);
      const [x, y] = what === "station" ? this.world.stations[0] : this.world.devices[what].at;
      this.on.move(what, x + step * arrow[0], y + step * arrow[1], this.world.devices[what]?.id);
      this.on.drop();
    } else if (event.key === "PageDown" || event.key === "PageUp") {
      const all = [...(this.moves ? ["station"] : []), ...Array(count).keys()];
      this.focus(all.at((all.indexOf(what) + (event.key === "PageDown" ? 1 : -1)) % all.length));
    } else if (event.key === "Delete" && what !== "station") {
      this.on.remove(what);
    } else {
      return;
    }
    event.preventDefault();
  }

  focus(what) {
    (what === "station" ? this.station : this.nodes[what])?.focus({ preventScroll: true });
  }

  place(node, at) {
    const [x, y] = this.view.toPicture(at);
    adjust(node, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
  }

  draw(world, units, marks, chosen, ledger) {
    this.world = world;
    const placed = world.devices.filter((device) => device.at);
    this.svg.classList.toggle("unplaced", !placed.length);
    this.svg.classList.toggle("crowded", world.devices.length > CROWD);
    const width = this.svg.clientWidth || 300;
    if (this.dragged === null || width !== this.width) {
      this.width = width;
      const places = [...placed.map((device) => device.at), ...world.stations];
      this.view = frame(places.length ? places : [[0, 0]], width, HEIGHT);
      this.drawTicks(width);
    }
    this.drawStations(world, chosen);
    this.drawLinks(world, units);
    this.drawDevices(world, units, marks, chosen, ledger);
  }

  // One that can be moved, or those of a file.
  drawStations(world, chosen) {
    this.moves = this.on !== null && world.station_moves;
    const label = (at) => `base station at ${at.slice(0, 2).map((value) => Number(value.toFixed(2))).join(", ")} m`;
    this.station.style.display = this.moves ? "" : "none";
    if (this.moves) {
      this.place(this.station, world.stations[0]);
      adjust(this.station, { "aria-label": label(world.stations[0]), tabindex: chosen === "station" || chosen === null ? 0 : -1 });
    }
    const fixed = this.moves ? [] : world.stations;
    this.fixed.replaceChildren(...fixed.map((at) => {
      const node = shape("g", { class: "station fixed", role: "img", "aria-label": label(at) }, mast());
      this.place(node, at);
      return node;
    }));
  }

  drawTicks(width) {
    const [across, along] = this.view.ends;
    const lines = (ends, make) => ticks(ends).flatMap(make);
    this.grid.replaceChildren(
      ...lines(across, (x) => {
        const px = this.view.toPicture([x, 0])[0];
        return [shape("line", { x1: px, x2: px, y1: 8, y2: HEIGHT - 18 }), shape("text", { x: px, y: HEIGHT - 4, "text-anchor": "middle" }, `${x} m`)];
      }),
      ...lines(along, (y) => {
        const py = this.view.toPicture([0, y])[1];
        return [shape("line", { x1: 30, x2: width, y1: py, y2: py }), shape("text", { x: 26, y: py + 4, "text-anchor": "end" }, String(y))];
      }));
  }

  drawLinks(world, units) {
    const spot = (at) => this.view.toPicture(at).map((value) => value.toFixed(1)).join(" ");
    const lines = [];
    for (const unit of units) {
      const head = world.devices[unit.leader].at;
      if (!head) continue;
      const inside = unit.members.filter((k) => k !== unit.leader && world.devices[k].at)
        .map((k) => `M${spot(world.devices[k].at)}L${spot(head)}`).join("");
      if (inside) lines.push({ d: inside, stroke: unit.colour, class: "inside" });
      const station = world.stations[world.devices[unit.leader].station];
      if (station) lines.push({ d: `M${spot(head)}L${spot(station)}`, stroke: unit.colour, class: "uplink" });
    }
    while (this.links.length > lines.length) this.links.pop().remove();
    while (this.links.length < lines.length) {
      this.links.push(shape("path", {}));
      this.net.append(this.links.at(-1));
    }
    lines.forEach((line, index) => adjust(this.links[index], line));
  }

  drawDevices(world, units, marks, chosen, ledger) {
    while (this.nodes.length > world.devices.length) this.nodes.pop().remove();
    while (this.nodes.length < world.devices.length) {
      const index = this.nodes.length;
      const node = this.handle("device", () => index);
      node.append(shape("circle", { class: "reach", r: 14 }), shape("circle", { class: "mark", r: 10 }), shape("path", { class: "body" }), shape("rect", { class: "charge", x: -8, y: 9, height: 3, rx: 1 }), shape("text", { x: 9, y: -8 }), shape("title", {}));
      node.addEventListener("pointerenter", () => { this.tip.textContent = node.getAttribute("aria-label"); });
      this.nodes.push(node);
      this.crowd.append(node);
    }
    units.forEach((unit, cluster) => {
      for (const index of unit.members) {
        const device = world.devices[index];
        const leads = index === unit.leader;
        const node = this.nodes[index];
        if (device.at && this.dragged !== index) this.place(node, device.at);
        const away = ledger?.absent.includes(index);
        const empty = ledger?.empty.includes(index);
        const classes = ["device", leads ? "leader" : "", marks.has(index) ? "changed" : "", chosen === index ? "chosen" : "", away ? "absent" : "", empty ? "empty" : ""];
        adjust(node, {
          class: classes.filter(Boolean).join(" "),
          fill: unit.colour,
          tabindex: chosen === index || (chosen === null && !this.moves && index === 0) ? 0 : -1,
          "aria-label": describe(device, cluster, unit, leads, away, empty),
        });
        const [, , body, charge, text, title] = node.children;
        adjust(body, { d: leads ? "M0 -9L9 0L0 9L-9 0Z" : "M5 0A5 5 0 1 1 -5 0A5 5 0 1 1 5 0Z" });
        adjust(charge, { width: 16 * share(device, ledger, index), opacity: device.battery_joules === null ? 0 : 1 });
        const name = leads ? String(cluster) : "";
        if (text.textContent !== name) text.textContent = name;
        const words = node.getAttribute("aria-label");
        if (title.textContent !== words) title.textContent = words;
        if (chosen === index) this.tip.textContent = words;
      }
    });
  }
}

const mast = () => [shape("path", { class: "mast", d: "M0 -11l9 18h-18z" }), shape("text", { y: 22, "text-anchor": "middle" }, "base station")];

const share = (device, ledger, index) =>
  (device.battery_joules ? Math.max(0, 1 - (ledger ? ledger.joules[index] : 0) / device.battery_joules) : 0);

function describe(device, cluster, unit, leads, away, empty) {
  const words = [`device ${device.id}`, device.region, `cluster ${cluster}${leads ? " (leader)" : ""}`, `${unit.updates} local update${unit.updates === 1 ? "" : "s"}`, `${device.samples} samples: ${device.main}`];
  // A run that is followed tells no CPU.
  if (device.cpu_hz !== null) words.push(`${device.board ?? "CPU"}: ${Number((device.cpu_hz / 1e9).toPrecision(3))} GHz, ${Number(device.cycles_per_sample.toPrecision(3))} cycles a sample`);
  if (device.snr_db !== null) words.push(`SNR ${device.snr_db} dB`);
  if (device.at) words.push(`at ${device.at.slice(0, 2).map((value) => Number(value.toFixed(2))).join(", ")} m`);
  if (device.battery_joules !== null) words.push(`battery ${device.battery_joules} J`);
  if (empty) words.push("battery empty");
  else if (away) words.push("absent in this round");
  return words.filter(Boolean).join("; ");
}
