// Light or dark: the system's choice until the reader makes another.
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
