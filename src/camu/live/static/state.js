// The settings of this page with undo and redo; the address after # carries them.

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
