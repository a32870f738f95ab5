// Draws the charts of a search: those of a scheme when its part of the page is opened.
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const places = [...document.querySelectorAll(".chart")];

  async function draw(place) {
    const { spec, datasets } = page.charts[place.dataset.chart];
    const theme = page.themes[system.matches ? "dark" : "light"];
    const options = { mode: "vega-lite", renderer: "svg", ast: true, actions: { source: false, compiled: false, editor: false } };
    place.dataset.drawn = "yes";
    camuPoints.start(place);
    await vegaEmbed(place, { ...spec, datasets, background: null, config: theme }, options);
    place.querySelector("summary").setAttribute("aria-label", "Save this chart");
  }

  const seen = (place) => !place.closest("details") || place.closest("details").open;

  async function drawAll() {
    document.documentElement.dataset.theme = system.matches ? "dark" : "light";
    await Promise.all(places.filter(seen).map(draw));
    document.documentElement.dataset.state = "ready";
  }

  for (const part of document.querySelectorAll("details")) {
    part.addEventListener("toggle", () => {
      for (const place of part.querySelectorAll(".chart")) if (part.open && !place.dataset.drawn) draw(place);
    });
  }
  system.addEventListener("change", drawAll);
  drawAll();
})();
