// Downloads: files made by the server, charts as they are on the page, and a link.
import { post } from "./api.js";
import { download, element, find } from "./dom.js";

const FILES = ["config.toml", "plan.json", "units.csv", "devices.csv", "fleet.csv", "stations.csv", "all.zip"];
const CHARTS = ["map", "timeline", "contribution", "labels", "snr"];

const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

export class Downloads {
  // `shown` gives the scheme that is looked at, `training` the number of the training or null.
  constructor(store, shown, training, accuracy) {
    Object.assign(this, { store, shown, training, accuracy });
    const button = (text, work, id) => element("button", { type: "button", id, onclick: () => this.try(work) }, text);
    find("downloads").append(
      ...FILES.map((name) => button(name, () => this.file(name), `download-${name}`)),
      ...CHARTS.map((name) => button(`${name}.svg`, () => this.file(`${name}.svg`), `download-${name}.svg`)),
      button("accuracy.svg", () => this.curves(), "download-accuracy.svg"),
      button("run directory", () => this.runs(), "download-runs"),
      button("copy link", () => this.link(), "download-link"));
  }

  async try(work) {
    try {
      this.say((await work()) ?? "");
    } catch (error) {
      this.say(error.message);
    }
  }

  say(text) {
    find("download-note").textContent = text;
  }

  async ask(what) {
    const answer = await post("download", { state: this.store.now, what, scheme: this.shown() });
    if (answer.errors) throw new Error(answer.errors.map((one) => one.text).join(" "));
    return answer;
  }

  async file(what) {
    const answer = await this.ask(what);
    download(answer.name, answer.type, bytes(answer.content));
    return `${answer.name} is saved.`;
  }

  async curves() {
    const text = await this.accuracy.svg();
    if (!text) throw new Error("Nothing has been trained yet.");
    download("camu-accuracy.svg", "image/svg+xml", text);
    return "camu-accuracy.svg is saved.";
  }

  runs() {
    const number = this.training();
    if (number === null) throw new Error("Nothing has been trained yet.");
    element("a", { href: `trainings/${number}/runs.zip`, download: "" }).click();
  }

  async link() {
    await navigator.clipboard.writeText(location.href);
    return "The link is copied. What follows its # carries the settings; it works behind the address of any camu live that has the same configuration.";
  }
}
