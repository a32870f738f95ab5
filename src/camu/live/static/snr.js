// The SNR matrix as a picture: bright cells are good links, devices ordered by cluster.
import { element } from "./dom.js";

// Viridis at nine places, linear in between; safe for all common colour vision deficiencies.
const STOPS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

export function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, channel) => Math.round(value + (place - low) * (STOPS[low + 1][channel] - value)));
}

// Devices of the matrix, cluster by cluster.
export const order = (units, count) => units.flatMap((unit) => unit.members).filter((index) => index < count);

export class Snr {
  constructor(place) {
    this.canvas = element("canvas", { class: "snr" });
    this.words = element("p", { class: "note" });
    place.replaceChildren(this.canvas, this.words);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.legend());
  }

  draw(world, units) {
    this.matrix = world.snr_db;
    this.devices = world.devices;
    this.rows = order(units, this.matrix.length);
    const values = this.matrix.flat();
    this.low = Math.min(...values);
    this.high = Math.max(...values);
    const size = this.rows.length;
    this.canvas.width = this.canvas.height = size;
    const picture = new ImageData(size, size);
    const span = Math.max(this.high - this.low, 1e-9);
    this.rows.forEach((a, y) => this.rows.forEach((b, x) => {
      picture.data.set([...colour((this.matrix[a][b] - this.low) / span), 255], 4 * (y * size + x));
    }));
    this.canvas.getContext("2d").putImageData(picture, 0, 0);
    this.legend();
  }

  legend() {
    const part = this.devices.length > this.rows.length ? `; the first ${this.rows.length} of ${this.devices.length} devices` : "";
    this.words.textContent = `${this.low} dB (dark) to ${this.high} dB (bright)${part}`;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const cell = (offset, whole) => this.rows[Math.min(Math.floor(offset / whole * this.rows.length), this.rows.length - 1)];
    const [a, b] = [cell(event.offsetY, box.height), cell(event.offsetX, box.width)];
    if (a === undefined || b === undefined) return;
    const to = a === b ? "the base station" : this.devices[b].id;
    this.words.textContent = `${this.devices[a].id} to ${to}: ${this.matrix[a][b]} dB`;
  }
}
