// What part of a fleet the maps show: one scale for both axes, zoom, ticks, and overlapping devices apart.

const MARGIN = 34;
const MOST = 4000; // times the scale at which the whole fleet is seen
const GOLDEN = Math.PI * (3 - Math.sqrt(5)); // between one device of a fan and the next

// The part that is shown, by all maps of a page; `changed` is called when it is another one.
export class View {
  constructor(changed = () => {}) {
    Object.assign(this, { changed, factor: 1, centre: null });
  }

  // Zoom about a place, which stays where it is in the picture; about the middle without one.
  zoom(by, about, shown) {
    const factor = Math.min(Math.max(this.factor * by, 1), MOST);
    const [x, y] = shown.centre;
    const [px, py] = about ?? shown.centre;
    const left = this.factor / factor;
    this.centre = factor === 1 ? null : [px + (x - px) * left, py + (y - py) * left];
    this.factor = factor;
    this.changed();
  }

  // Move by metres.
  pan([x, y], shown) {
    this.centre = [shown.centre[0] - x, shown.centre[1] - y];
    this.changed();
  }

  // Look at a place from near.
  show(at, factor = 8) {
    this.centre = at.slice(0, 2);
    this.factor = Math.max(this.factor, factor);
    this.changed();
  }

  whole() {
    Object.assign(this, { factor: 1, centre: null });
    this.changed();
  }
}

// Everything in view, y upwards, with the same scale along both axes; `view` zooms into it.
export function frame(places, width, height, view = { factor: 1, centre: null }) {
  const ends = (axis) => {
    const values = places.map((place) => place[axis]);
    return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  };
  const [[left, right], [bottom, top]] = [ends(0), ends(1)];
  const fit = Math.min((width - 2 * MARGIN) / Math.max(right - left, 1), (height - 2 * MARGIN) / Math.max(top - bottom, 1));
  const scale = fit * view.factor;
  const centre = view.centre ?? [(left + right) / 2, (bottom + top) / 2];
  const [cx, cy] = centre;
  return {
    scale,
    centre,
    ends: [[cx - width / 2 / scale, cx + width / 2 / scale], [cy - height / 2 / scale, cy + height / 2 / scale]],
    toPicture: ([x, y]) => [width / 2 + (x - cx) * scale, height / 2 - (y - cy) * scale],
    toMetres: ([px, py]) => [cx + (px - width / 2) / scale, cy - (py - height / 2) / scale],
  };
}

// A round step of at least so many metres.
export function roundStep(metres) {
  const power = 10 ** Math.floor(Math.log10(metres));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= metres);
}

// The places of ticks at this step.
export function ticks([low, high], step) {
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, index) => Number(((first + index) * step).toPrecision(10)));
}

export const distance = (metres, step) => (step >= 1000 ? `${Number((metres / 1000).toPrecision(6))} km` : `${metres} m`);

// Devices that would lie on each other (nearer than `near` pixels) apart, in a spiral about their
// middle; the others stay. Points without a place are null, and stay so.
export function fan(points, near, spacing) {
  const groups = [];
  const cells = new Map();
  const key = (x, y) => `${x},${y}`;
  points.forEach((point, index) => {
    if (!point) return;
    const [cx, cy] = point.map((value) => Math.floor(value / near));
    let found = null;
    for (let x = cx - 1; x <= cx + 1 && !found; x += 1) {
      for (let y = cy - 1; y <= cy + 1 && !found; y += 1) {
        found = (cells.get(key(x, y)) ?? []).find((group) => Math.hypot(group.at[0] - point[0], group.at[1] - point[1]) < near) ?? null;
      }
    }
    if (!found) {
      found = { at: point, members: [] };
      groups.push(found);
      cells.set(key(cx, cy), [...(cells.get(key(cx, cy)) ?? []), found]);
    }
    found.members.push(index);
  });
  const shown = points.map((point) => point && [...point]);
  for (const { members } of groups) {
    if (members.length < 2) continue;
    const middle = [0, 1].map((axis) => members.reduce((sum, index) => sum + points[index][axis], 0) / members.length);
    members.forEach((index, place) => {
      const radius = spacing * Math.sqrt(place + 0.3);
      shown[index] = [middle[0] + radius * Math.cos(place * GOLDEN), middle[1] + radius * Math.sin(place * GOLDEN)];
    });
  }
  return shown;
}

// Names of the places of a fleet, where they do not cover each other; larger places first.
export function placeNames(devices, shown, width, height) {
  const places = new Map();
  devices.forEach((device, index) => {
    if (!device.region || !shown[index]) return;
    const known = places.get(device.region) ?? [];
    known.push(shown[index]);
    places.set(device.region, known);
  });
  if (places.size < 2) return [];
  const taken = [];
  const names = [];
  for (const [name, points] of [...places].sort(([, a], [, b]) => b.length - a.length)) {
    const x = points.reduce((sum, point) => sum + point[0], 0) / points.length;
    const y = points.reduce((least, point) => Math.min(least, point[1]), Infinity) - 9;
    const half = 3 * name.length + 3;
    const box = [x - half, x + half, y - 11, y + 3];
    const outside = box[0] < 0 || box[1] > width || box[2] < 0 || box[3] > height;
    if (outside || taken.some((other) => box[0] < other[1] && other[0] < box[1] && box[2] < other[3] && other[2] < box[3])) continue;
    taken.push(box);
    names.push({ name, x, y });
  }
  return names;
}

// The numbers of devices whose id has this text in it; those that begin with it first.
export function search(devices, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const found = devices.map((device, index) => ({ index, at: device.id.toLowerCase().indexOf(wanted) })).filter((one) => one.at >= 0);
  return found.sort((a, b) => (a.at > 0) - (b.at > 0) || a.index - b.index).map((one) => one.index);
}
