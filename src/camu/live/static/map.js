// A map of the fleet as SVG: devices, leaders, links and the base station, moved by pointer and keys.
import { adjust, element, number, shape } from "./dom.js";
import { View, distance, fan, frame, placeNames, roundStep, ticks } from "./view.js";

const HEIGHT = 400;
const TICK_PIXELS = 80;
const WHEEL = 1.2; // how far a step of the wheel zooms
const CROWD = 100; // devices from which on they are drawn small, without numbers
const STEP_METRES = 0.5;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class FleetMap {
  // `on` has move(what, x, y, id), drop(), choose(index), add(x, y) and remove(index); null: read only.
  constructor(place, label, on, view = new View()) {
    this.on = on;
    this.part = view; // of the fleet that is shown, shared with the other maps
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
    this.names = shape("g", { class: "places", "aria-hidden": "true" });
    this.legs = shape("path", { class: "legs" }); // from where a device is to where it is drawn
    this.svg = shape("svg", { class: "map", role: "group", "aria-label": label, "aria-describedby": on ? "map-help" : null, height: HEIGHT },
      this.grid, this.legs, this.net, this.crowd, this.fixed, this.station, this.names);
    this.tip = element("p", { class: "tip note", "aria-live": "off" }, "\u00a0");
    place.append(this.svg, this.tip);
    this.svg.addEventListener("pointerdown", (event) => this.slide(event));
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey || !this.view) return; // without Ctrl the page is scrolled
      event.preventDefault();
      this.part.zoom(event.deltaY < 0 ? WHEEL : 1 / WHEEL, this.metres(event), this.view);
    }, { passive: false });
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
    group.addEventListener("pointerdown", (event) => {
      const near = kind === "device" ? this.nearest(event) : null;
      this.grab(event, near === null ? group : this.nodes[near], near ?? what());
    });
    group.addEventListener("keydown", (event) => this.key(event, what()));
    group.addEventListener("focus", () => this.on.choose(what()));
    return group;
  }

  pixels(event) {
    const box = this.svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  metres(event) {
    return this.view.toMetres(this.pixels(event));
  }

  // The device that is drawn nearest to the pointer; where devices lie close, another one may be on top.
  nearest(event) {
    const [px, py] = this.pixels(event);
    const far = this.shown.map(([x, y]) => Math.hypot(x - px, y - py));
    return far.indexOf(far.reduce((a, b) => Math.min(a, b)));
  }

  // Moves the part that is shown; a finger scrolls the page unless the map is zoomed.
  slide(event) {
    if (event.button !== 0 || !this.view || event.target.closest(".device, .station:not(.fixed)")) return;
    if (event.pointerType !== "mouse" && this.part.factor === 1) return;
    let last = [event.clientX, event.clientY];
    const move = (next) => {
      const [dx, dy] = [next.clientX - last[0], next.clientY - last[1]];
      if (!dx && !dy) return;
      last = [next.clientX, next.clientY];
      this.part.pan([dx / this.view.scale, -dy / this.view.scale], this.view);
    };
    const end = () => window.removeEventListener("pointermove", move);
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end, { once: true });
    window.addEventListener("pointercancel", end, { once: true });
  }

  grab(event, group, what) {
    if (event.button !== 0) return;
    event.preventDefault();
    group.focus({ preventScroll: true });
    group.setPointerCapture(event.pointerId);
    this.dragged = what;
    // Its number may change while it is dragged: a device that reaches nobody is left out.
    const id = what === "station" ? null : this.world.devices[what].id;
    // A device that is drawn apart from others stays where it is until it is moved.
    const at = what === "station" ? this.world.stations[0] : this.world.devices[what].at;
    const drawn = what === "station" || !at ? null : this.shown[what];
    const [ox, oy] = drawn ? this.view.toPicture(at).map((value, axis) => drawn[axis] - value) : [0, 0];
    const move = (next) => {
      const [px, py] = this.pixels(next);
      this.put(group, [px, py]);
      this.on.move(what, ...this.view.toMetres([px - ox, py - oy]), id);
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
      const step = Math.max(STEP_METRES, roundStep(1 / this.view.scale)) * (event.shiftKey ? 10 : 1);
      const [x, y] = (what === "station" ? this.world.stations[0] : this.world.devices[what].at) ?? this.view.centre;
      this.on.move(what, x + step * arrow[0], y + step * arrow[1], this.world.devices[what]?.id);
      this.on.drop();
    } else if (event.key === "PageDown" || event.key === "PageUp") {
      const all = [...(this.moves ? ["station"] : []), ...Array(count).keys()];
      this.focus(all.at((all.indexOf(what) + (event.key === "PageDown" ? 1 : -1)) % all.length));
    } else if ("+-0".includes(event.key)) {
      const about = what === "station" ? this.world.stations[0] : this.world.devices[what].at;
      if (event.key === "0") this.part.whole();
      else this.part.zoom(event.key === "+" ? 2 : 0.5, about, this.view);
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
    this.put(node, this.view.toPicture(at));
  }

  put(node, [x, y]) {
    adjust(node, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
  }

  draw(world, units, marks, chosen, ledger, days = null) {
    this.world = world;
    const placed = world.devices.filter((device) => device.at);
    this.svg.classList.toggle("unplaced", !placed.length);
    this.svg.classList.toggle("crowded", world.devices.length > CROWD);
    const width = this.svg.clientWidth || 300;
    this.svg.classList.toggle("zoomed", this.part.factor > 1);
    if (this.dragged === null || width !== this.width) {
      this.width = width;
      const places = [...placed.map((device) => device.at), ...world.stations];
      this.view = frame(places.length ? places : [[0, 0]], width, HEIGHT, this.part);
      this.drawTicks(width);
    }
    this.spread(world, width);
    this.drawStations(world, chosen);
    this.drawLinks(world, units);
    this.drawDevices(world, units, marks, chosen, ledger, days);
    this.drawNames(world, width);
  }

  // Where devices are drawn: those on one spot apart, those without a place in rows at the top.
  spread(world, width) {
    const crowded = world.devices.length > CROWD;
    const points = world.devices.map((device) => device.at && this.view.toPicture(device.at));
    this.shown = crowded ? fan(points, 5, 7) : fan(points, 3, 14);
    const legs = [];
    points.forEach((point, index) => {
      const [x, y] = this.shown[index] ?? [0, 0];
      if (point && Math.hypot(x - point[0], y - point[1]) > 4) legs.push(`M${point.map((value) => value.toFixed(1)).join(" ")}L${x.toFixed(1)} ${y.toFixed(1)}`);
    });
    adjust(this.legs, { d: legs.join("") });
    const across = Math.max(1, Math.floor((width - 40) / 12));
    const lost = [...world.devices.keys()].filter((index) => !world.devices[index].at);
    lost.forEach((index, place) => {
      this.shown[index] = [30 + 12 * (place % across), 12 + 12 * Math.floor(place / across)];
    });
  }

  drawNames(world, width) {
    const names = placeNames(world.devices, this.shown.map((point, index) => (world.devices[index].at ? point : null)), width, HEIGHT - 18);
    this.names.replaceChildren(...names.map(({ name, x, y }) => shape("text", { x, y, "text-anchor": "middle" }, name)));
  }

  // One that can be moved, or those of a file.
  drawStations(world, chosen) {
    this.moves = this.on !== null && world.station_moves;
    const label = (at, name) => `${name ?? "base station"} at ${at.slice(0, 2).map((value) => Number(value.toFixed(2))).join(", ")} m`;
    this.station.style.display = this.moves ? "" : "none";
    if (this.moves) {
      this.place(this.station, world.stations[0]);
      adjust(this.station, { "aria-label": label(world.stations[0]), tabindex: chosen === "station" || chosen === null ? 0 : -1 });
    }
    const fixed = this.moves ? [] : world.stations;
    this.fixed.replaceChildren(...fixed.map((at, index) => {
      const name = world.station_names?.[index];
      const node = shape("g", { class: "station fixed", role: "img", "aria-label": label(at, name) }, mast(name));
      this.place(node, at);
      return node;
    }));
  }

  drawTicks(width) {
    const [across, along] = this.view.ends;
    const step = roundStep(TICK_PIXELS / this.view.scale);
    this.grid.replaceChildren(
      ...ticks(across, step).flatMap((x) => {
        const px = this.view.toPicture([x, 0])[0];
        const text = px > 20 && px < width - 24 ? [shape("text", { x: px, y: HEIGHT - 4, "text-anchor": "middle" }, distance(x, step))] : [];
        return [shape("line", { x1: px, x2: px, y1: 0, y2: HEIGHT - 16 }), ...text];
      }),
      ...ticks(along, step).flatMap((y) => {
        const py = this.view.toPicture([0, y])[1];
        if (py > HEIGHT - 24 || py < 8) return [];
        return [shape("line", { x1: 0, x2: width, y1: py, y2: py }), shape("text", { x: 2, y: py - 3 }, distance(y, step))];
      }));
  }

  drawLinks(world, units) {
    const spot = (k) => this.shown[k].map((value) => value.toFixed(1)).join(" ");
    const lines = [];
    for (const unit of units) {
      const head = world.devices[unit.leader].at;
      if (!head) continue;
      const inside = unit.members.filter((k) => k !== unit.leader && world.devices[k].at)
        .map((k) => `M${spot(k)}L${spot(unit.leader)}`).join("");
      if (inside) lines.push({ d: inside, stroke: unit.colour, class: "inside" });
      const station = world.stations[world.devices[unit.leader].station];
      if (station) lines.push({ d: `M${spot(unit.leader)}L${this.view.toPicture(station).map((value) => value.toFixed(1)).join(" ")}`, stroke: unit.colour, class: "uplink" });
    }
    while (this.links.length > lines.length) this.links.pop().remove();
    while (this.links.length < lines.length) {
      this.links.push(shape("path", {}));
      this.net.append(this.links.at(-1));
    }
    lines.forEach((line, index) => adjust(this.links[index], line));
  }

  drawDevices(world, units, marks, chosen, ledger, days) {
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
        if (this.dragged !== index) this.put(node, this.shown[index]);
        const away = ledger?.absent.includes(index);
        const empty = ledger?.empty.includes(index);
        const classes = ["device", leads ? "leader" : "", marks.has(index) ? "changed" : "", chosen === index ? "chosen" : "", away ? "absent" : "", empty ? "empty" : ""];
        adjust(node, {
          class: classes.filter(Boolean).join(" "),
          fill: unit.colour,
          tabindex: chosen === index || (chosen === null && !this.moves && index === 0) ? 0 : -1,
          "aria-label": describe(device, cluster, unit, leads, { away, empty, days: battery(days, index), lost: world.lost?.[device.id] }),
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

const mast = (name) => [shape("path", { class: "mast", d: "M0 -11l9 18h-18z" }), shape("text", { y: 20, "text-anchor": "middle" }, name ?? "base station")];

const share = (device, ledger, index) =>
  (device.battery_joules ? Math.max(0, 1 - (ledger ? ledger.joules[index] : 0) / device.battery_joules) : 0);

const span = (value) => (value === "inf" ? "for ever" : `${number(value, 3)} days`);

// How long a battery lasts, in words; null without one.
const battery = (days, index) =>
  (days && days.with[index] !== null ? `lasts ${span(days.with[index])} with learning, ${span(days.without[index])} without` : null);

function describe(device, cluster, unit, leads, { away, empty, days, lost }) {
  const words = [`device ${device.id}`, device.region, `cluster ${cluster}${leads ? " (leader)" : ""}`, `${unit.updates} local update${unit.updates === 1 ? "" : "s"}`, `${device.samples} samples: ${device.main}`];
  // A run that is followed tells no CPU.
  if (device.cpu_hz !== null) words.push(`${device.board ?? "CPU"}: ${Number((device.cpu_hz / 1e9).toPrecision(3))} GHz, ${Number(device.cycles_per_sample.toPrecision(3))} cycles a sample`);
  if (device.snr_db !== null) words.push(`SNR ${device.snr_db.toFixed(1)} dB`);
  if (unit.link && unit.link !== "shannon") words.push(`link ${device.link ?? unit.link}`);
  words.push(device.at ? `at ${device.at.slice(0, 2).map((value) => Number(value.toFixed(2))).join(", ")} m` : "no place known");
  if (lost) words.push(`its measured ${lost} is left out, since it was measured elsewhere`);
  if (device.battery_joules !== null) words.push(`battery ${number(device.battery_joules)} J${days ? `, ${days}` : ""}`);
  if (empty) words.push("battery empty");
  else if (away) words.push("absent in this round");
  return words.filter(Boolean).join("; ");
}
