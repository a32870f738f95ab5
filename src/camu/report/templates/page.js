// Draws the charts of a report and redraws them when a choice, the theme or the width changes.
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const root = document.documentElement;
  const find = (id) => document.getElementById(id);
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();
  const turns = new Map();
  let chosen = null; // the theme that the reader chose; null: the system's

  const isDark = () => (chosen === null ? system.matches : chosen === "dark");

  const shade = (value) => (isDark() && Object.hasOwn(page.dark_shades, value) ? page.dark_shades[value] : value);

  // Tables travel as columns; a column whose values are all the same is that value.
  function rows(number) {
    const table = page.tables[number];
    const names = Object.keys(table.columns);
    return Array.from({ length: table.rows }, (_, index) =>
      Object.fromEntries(names.map((name) => {
        const column = table.columns[name];
        const value = Array.isArray(column) ? column[index] : column;
        return [name, name === "colour" ? shade(value) : value];
      })));
  }

  // The chart with its markers replaced: a list that holds a marker alone becomes its values, and
  // a marker that stands for a text becomes it.
  function filled(spec, values, texts) {
    return JSON.parse(JSON.stringify(spec), (_, value) => {
      if (Array.isArray(value) && value.length === 1 && Object.hasOwn(values, value[0])) return values[value[0]];
      return typeof value === "string" && Object.hasOwn(texts, value) ? texts[value] : shade(value);
    });
  }

  function config(width, names) {
    const theme = page.themes[isDark() ? "dark" : "light"];
    const narrow = width < 560;
    // As many columns as the longest name leaves room for.
    const longest = Math.max(...names.map((name) => name.length));
    const columns = Math.max(1, Math.floor((width - 60) / (36 + 7 * longest)));
    const legend = { ...theme.legend, columns: Math.min(columns, 6) };
    // Side by side, two legends are wider than a phone.
    if (narrow) legend.layout = { bottom: { direction: "vertical", anchor: "start" } };
    return { ...theme, background: "transparent", legend };
  }

  // A chart is drawn after the one before it in the same place; of several that wait, the last.
  function draw(place, key, tables, schemes, count) {
    const panel = page.panels[key];
    const card = place.closest(".card");
    const before = turns.has(place) ? turns.get(place).done.catch(() => {}) : Promise.resolve();
    const turn = {};
    place.dataset.state = "drawing";
    card.hidden = !(tables[panel.table] && tables[panel.table].length);
    turns.set(place, turn);
    const isLast = () => turns.get(place) === turn && !card.hidden;
    turn.done = before
      .then(() => (isLast() ? show(place, key, tables, schemes, count) : null))
      .then(() => { if (isLast()) place.dataset.state = "ready"; });
    return turn.done;
  }

  // A long fleet gets a low map: both axes have one scale.
  function heightOf(points, width) {
    const [across, up] = ["x", "y"].map((axis) => {
      const [first, ...more] = points.map((point) => point[axis]);
      const ends = more.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [first, first]);
      return Math.max(1, ends[1] - ends[0]);
    });
    return Math.min(480, Math.max(200, (width - 60) * up / across));
  }

  async function show(place, key, tables, schemes, count) {
    const panel = page.panels[key];
    if (views.has(place)) views.get(place).finalize();
    const spec = filled(panel.spec, {
      $schemes: schemes,
      $colours: schemes.map((name) => shade(page.looks[name][0])),
      $dashes: schemes.map((name) => page.looks[name][1]),
    }, scene().score);
    spec.datasets = { ...spec.datasets, ...tables };
    spec.autosize = { type: "fit-x", contains: "padding" };
    spec.description = find(`${place.id.replace("chart-", "")}-title`).textContent;
    if (panel.row_pixels) spec.height = Math.max(60, panel.row_pixels * count);
    if (key === "map") spec.height = heightOf([...tables.devices, ...tables.station], place.clientWidth);
    const result = await vegaEmbed(place, spec, {
      mode: "vega-lite",
      renderer: "svg",
      ast: true,
      config: config(place.clientWidth, key.startsWith("accuracy") ? schemes : ["a usual legend"]),
      tooltip: { theme: isDark() ? "dark" : "light" },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: `camu-${key}`,
    });
    const menu = place.querySelector("summary");
    if (menu) menu.setAttribute("aria-label", "Save this chart");
    views.set(place, result);
    camuPoints.start(place);
    if (key === "map") search();
  }

  // Rings around the devices whose ids have the text that is looked for, and the first of them in words.
  function search() {
    const text = find("search").value.trim().toLowerCase();
    const map = views.get(find("chart-map"));
    if (map) map.view.signal("found", text).runAsync();
    const plan = scene().plans[find("scheme").value];
    const hits = text ? rows(plan.tables.devices).filter((one) => one.device.toLowerCase().includes(text)) : [];
    const [first] = hits;
    const about = first ? `${first.device}: cluster ${first.cluster}, ${first.role}, ${first.samples} samples, ${first.region}` : "none";
    find("search-note").textContent = text ? `${about}${hits.length > 1 ? `; ${hits.length - 1} more` : ""}` : "";
  }

  function scene() {
    const inside = page.scenes.filter((one) => one.dataset === find("dataset").value);
    return inside.find((one) => one.setting === find("setting").value) || inside[0];
  }

  const world = (now) => [now.dataset, now.setting].filter(Boolean).join(", ");

  // Of many schemes, charts with a line or a bar each show one family and the first scheme.
  function shown(now) {
    if (now.schemes.length <= page.most_together) return now.schemes;
    return now.schemes.filter((_, index) => index === 0 || now.families[index] === find("family").value);
  }

  function drawWorld() {
    const now = scene();
    const some = shown(now);
    const family = some.length < now.schemes.length ? `, ${find("family").value}` : "";
    find("shown-world").textContent = `Shown: ${world(now)}${family}.`;
    for (const name of page.world_panels) find(`${name}-title`).textContent = now.titles[name];
    find("accuracy-title").textContent = now.titles[`accuracy-${find("axis").value}`];
    const draws = page.world_panels.map((key) => {
      const table = rows(now.tables[key]);
      // Dots of all schemes are in one chart; the others have a line or a bar for each.
      const names = key.startsWith("frontier") ? now.schemes : some;
      const data = { [page.panels[key].table]: table.filter((row) => names.includes(row.scheme)) };
      return draw(find(`chart-${key}`), key, data, names, names.length);
    });
    const key = `accuracy-${find("axis").value}`;
    const curves = rows(now.tables[key]).filter((row) => some.includes(row.scheme));
    return Promise.all([draw(find("chart-accuracy"), key, { curves }, some, 0), ...draws]);
  }

  function drawPlan() {
    const now = scene();
    const plan = now.plans[find("scheme").value];
    const several = page.scenes.length > 1 ? `${world(now)}: ` : "";
    find("shown-scheme").textContent = `Shown: ${find("scheme").value}.`;
    find("plan-text").textContent = several + plan.text;
    const tables = {};
    for (const [name, number] of Object.entries(plan.tables)) tables[name] = rows(number);
    return Promise.all(page.plan_panels.map((key) =>
      draw(find(`chart-${key}`), key, tables, now.schemes, tables.units.length)));
  }

  function offer(select, names, words) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(words ? words(name) : name, name)));
    if (names.includes(before)) select.value = before;
    select.closest("label").hidden = names.length < 2;
  }

  function offerAll() {
    const inside = page.scenes.filter((one) => one.dataset === find("dataset").value);
    offer(find("setting"), inside.map((one) => one.setting), (name) => name || "as configured");
    const now = scene();
    offer(find("scheme"), now.schemes);
    const families = now.schemes.length > page.most_together ? [...new Set(now.families)] : [];
    offer(find("family"), families);
  }

  async function drawAll() {
    root.dataset.theme = isDark() ? "dark" : "light";
    find("theme-name").textContent = isDark() ? "light" : "dark";
    if (!page.scenes.length) return;
    await Promise.all([drawWorld(), drawPlan()]);
    root.dataset.state = "ready";
  }

  find("theme").addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    drawAll();
  });
  system.addEventListener("change", drawAll);
  if (page.scenes.length) {
    offer(find("dataset"), [...new Set(page.scenes.map((one) => one.dataset))]);
    offerAll();
    for (const id of ["dataset", "setting"]) {
      find(id).addEventListener("change", () => { offerAll(); drawAll(); });
    }
    for (const id of ["axis", "family"]) find(id).addEventListener("change", drawWorld);
    find("scheme").addEventListener("change", drawPlan);
    find("search").addEventListener("input", search);
    // What the reader most wants to see first is the richest plan.
    const first = scene();
    const named = first.schemes.findIndex((name) => name.split(" ")[0] === page.first);
    if (named >= 0) {
      find("scheme").value = first.schemes[named];
      if (find("family").options.length) find("family").value = first.families[named];
    }
  }
  // Families fold; without this script, and on paper, all rows are seen.
  const folds = [...document.querySelectorAll("button.fold")];
  folds.forEach((button, index) => {
    const body = button.closest("tbody").nextElementSibling;
    const fold = (open) => {
      button.setAttribute("aria-expanded", open);
      body.classList.toggle("folded", !open);
    };
    button.addEventListener("click", () => fold(button.getAttribute("aria-expanded") !== "true"));
    fold(index === 0);
  });
  drawAll();
})();
