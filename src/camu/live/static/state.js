// The settings of this page and its changes of the fleet, with undo and redo; the address after # carries them.

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

const plain = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const NO_EDITS = { moved: {}, removed: [], added: [] };

export const fresh = (schemes) => ({ changes: {}, schemes, fleet: null });

export function toHash(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return "#s=" + btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The state in an address; null where there is none that can be read.
export function fromHash(hash) {
  if (!hash.startsWith("#s=")) return null;
  try {
    const text = atob(hash.slice(3).replaceAll("-", "+").replaceAll("_", "/"));
    const state = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    const whole = plain(state) && plain(state.changes) && Array.isArray(state.schemes) && state.schemes.length;
    return whole ? { changes: state.changes, schemes: state.schemes.map(String), fleet: plain(state.fleet) ? { ...NO_EDITS, ...state.fleet } : null } : null;
  } catch {
    return null;
  }
}

export class Store {
  constructor(state, changed) {
    this.now = state;
    this.changed = changed;
    this.past = [];
    this.future = [];
    this.before = null; // the state when a gesture began
  }

  // A gesture is one step of undo, however many changes it makes.
  begin() {
    if (this.before === null) {
      this.before = this.now;
      this.changed("begin");
    }
  }

  update(state) {
    if (same(state, this.now)) return;
    this.begin();
    this.now = state;
    this.changed("update");
  }

  commit() {
    if (this.before === null) return;
    if (!same(this.before, this.now)) {
      this.past.push(this.before);
      this.future = [];
    }
    this.before = null;
    this.changed("commit");
  }

  step(state) {
    this.update(state);
    this.commit();
  }

  undo() {
    this.commit();
    if (!this.past.length) return;
    this.changed("begin");
    this.future.push(this.now);
    this.now = this.past.pop();
    this.changed("update");
  }

  redo() {
    this.commit();
    if (!this.future.length) return;
    this.changed("begin");
    this.past.push(this.now);
    this.now = this.future.pop();
    this.changed("update");
  }
}

// The state with one setting changed; a value as the server has it needs no change.
export function withSetting(state, key, value, base) {
  const changes = { ...state.changes };
  if (same(value, base)) delete changes[key];
  else changes[key] = value;
  return { ...state, changes };
}

const rounded = (value) => Math.round(value * 100) / 100;

const positions = (world) => world.devices.map((device) => device.at);

const edits = (state) => state.fleet ?? NO_EDITS;

export function moveDevice(state, world, index, x, y, id = world.devices[index].id) {
  if (world.file) {
    const now = edits(state);
    const added = now.added.map((one) => (one.id === id ? { ...one, x: rounded(x), y: rounded(y) } : one));
    const moved = now.added.some((one) => one.id === id) ? now.moved : { ...now.moved, [id]: [rounded(x), rounded(y)] };
    return { ...state, fleet: { ...now, moved, added } };
  }
  const places = positions(world);
  places[index] = [rounded(x), rounded(y), places[index][2]];
  return { ...state, changes: { ...state.changes, "fleet.positions": places } };
}

export function moveStation(state, world, x, y) {
  const place = [rounded(x), rounded(y), world.stations[0][2]];
  return { ...state, changes: { ...state.changes, "fleet.base_station": place } };
}

const nearest = (world, x, y) => world.devices
  .filter((device) => device.at)
  .reduce((best, device) => {
    const distance = Math.hypot(device.at[0] - x, device.at[1] - y);
    return best && best.distance <= distance ? best : { id: device.id, distance };
  }, null);

function freeName(taken, stem) {
  let count = 1;
  while (taken.has(`${stem}-${count}`)) count += 1;
  return `${stem}-${count}`;
}

// In regions, new devices are a region of their own at the end, so that the others keep their names.
export function addDevice(state, world, regions, x, y) {
  if (world.file) {
    const now = edits(state);
    const like = nearest(world, x, y)?.id ?? world.devices[0].id;
    const id = freeName(new Set([...world.devices.map((device) => device.id), ...now.removed]), "new");
    const original = now.added.find((one) => one.id === like)?.like ?? like;
    return { ...state, fleet: { ...now, added: [...now.added, { id, like: original, x: rounded(x), y: rounded(y) }] } };
  }
  const last = regions.at(-1);
  const place = [rounded(x), rounded(y), 0];
  const next = last.name === "added"
    ? [...regions.slice(0, -1), { ...last, devices: last.devices + 1 }]
    : [...regions, { name: "added", devices: 1, x: [place[0], place[0]], y: [place[1], place[1]] }];
  return {
    ...state,
    changes: { ...state.changes, "fleet.regions": next, "fleet.positions": [...positions(world), place] },
  };
}

export function removeDevice(state, world, regions, index) {
  if (world.devices.length < 2) return state;
  const device = world.devices[index];
  if (world.file) {
    const now = edits(state);
    const moved = Object.fromEntries(Object.entries(now.moved).filter(([id]) => id !== device.id));
    if (now.added.some((one) => one.id === device.id)) {
      return { ...state, fleet: { ...now, moved, added: now.added.filter((one) => one.id !== device.id) } };
    }
    return { ...state, fleet: { ...now, moved, removed: [...now.removed, device.id] } };
  }
  let left = index;
  let found = false;
  const next = regions.map((region) => {
    const here = !found && left < region.devices;
    if (!found) left -= region.devices;
    found ||= here;
    return here ? { ...region, devices: region.devices - 1 } : region;
  }).filter((region) => region.devices > 0);
  const places = positions(world).filter((_, place) => place !== index);
  return { ...state, changes: { ...state.changes, "fleet.regions": next, "fleet.positions": places } };
}
