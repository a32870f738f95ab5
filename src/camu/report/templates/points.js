// Points of charts by keyboard: arrow keys go from one to the next, whose name and values are read out.
globalThis.camuPoints = (() => {
  "use strict";
  const MARKS = ".mark-symbol.role-mark > path[aria-label], .mark-rect.role-mark > path[aria-label]";
  const HINT = "Left and right: the next point. Up and down: the one above or below. Home, End: the first, the last.";
  const INNER = /^(colour|order|place|size): /; // what a chart needs and nobody reads

  const words = (mark) => mark.getAttribute("aria-label").split("; ").filter((part) => !INNER.test(part)).join("; ");

  function middle(mark) {
    const box = mark.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }

  // The nearest column first, in it the nearest point; the same one where there is none.
  function vertical(marks, now, up) {
    const [x, y] = middle(marks[now]);
    let best = now;
    let least = [Infinity, Infinity];
    marks.forEach((mark, index) => {
      const [otherX, otherY] = middle(mark);
      const away = up ? y - otherY : otherY - y;
      const aside = Math.round(Math.abs(otherX - x));
      if (away > 0.5 && (aside < least[0] || (aside === least[0] && away < least[1]))) {
        best = index;
        least = [aside, away];
      }
    });
    return best;
  }

  function target(marks, now, key) {
    const last = marks.length - 1;
    if (key === "Home") return 0;
    if (key === "End") return last;
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return null;
    if (now === null) return 0;
    if (key === "ArrowLeft") return Math.max(now - 1, 0);
    if (key === "ArrowRight") return Math.min(now + 1, last);
    return vertical(marks, now, key === "ArrowUp");
  }

  // Once for the place of a chart, however often the chart is drawn in it.
  function start(place) {
    if (place.dataset.keys) return;
    place.dataset.keys = "yes";
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-roledescription", "chart");
    if (!place.hasAttribute("aria-labelledby") && !place.hasAttribute("aria-label")) {
      place.setAttribute("aria-label", place.closest(".card").querySelector("h3").textContent);
    }
    const said = document.createElement("p");
    said.className = "note said";
    said.setAttribute("role", "status");
    const ring = document.createElement("span");
    ring.className = "ring";
    ring.hidden = true;
    place.after(said, ring);
    let now = null;

    function show(mark) {
      const box = mark.getBoundingClientRect();
      const card = ring.offsetParent.getBoundingClientRect();
      const size = [Math.max(box.width, 12) + 8, Math.max(box.height, 12) + 8];
      ring.style.left = `${box.x + box.width / 2 - card.x - size[0] / 2}px`;
      ring.style.top = `${box.y + box.height / 2 - card.y - size[1] / 2}px`;
      [ring.style.width, ring.style.height] = size.map((value) => `${value}px`);
      said.textContent = words(mark);
    }

    place.addEventListener("focus", () => {
      if (place.matches(":focus-visible")) said.textContent = HINT;
    });
    place.addEventListener("blur", () => {
      now = null;
      ring.hidden = true;
      said.textContent = "";
    });
    place.addEventListener("keydown", (event) => {
      if (event.target !== place || event.ctrlKey || event.altKey || event.metaKey) return;
      const marks = [...place.querySelectorAll(MARKS)];
      if (!marks.length) return;
      const next = target(marks, now === null || now >= marks.length ? null : now, event.key);
      if (next === null) return;
      event.preventDefault();
      now = next;
      ring.hidden = false;
      show(marks[now]);
    });
  }

  return { start };
})();
