"use strict";
// Sorting and filtering of the summary, figures that grow when clicked, and the viewer of runs over time.
(() => {
  const $ = (id) => document.getElementById(id);

  // A link to a run opens its part.
  const openTarget = () => {
    const target = location.hash && $(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  const table = $("table"), body = table.tBodies[0];
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head) return;
    const numeric = head.classList.contains("number");
    const now = head.getAttribute("aria-sort");
    const up = now ? now === "descending" : !numeric;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[head.cellIndex].dataset.sort;
    const compare = numeric ? (a, b) => key(a) - key(b) || 0 : (a, b) => key(a).localeCompare(key(b));
    const known = (row) => !numeric || key(row) !== "-inf";
    const rows = [...body.rows].sort((a, b) => known(b) - known(a) || (up ? compare(a, b) : compare(b, a)));
    body.append(...rows);
  });
  $("filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  for (const picture of document.querySelectorAll("figure img")) picture.addEventListener("click", () => picture.classList.toggle("full"));

  if (!$("series")) return;
  const groups = JSON.parse($("series").textContent);
  const PANELS = [
    { key: "throughput", title: "Throughput (samples/s)", short: "samples/s", height: 120 },
    { key: "ratio", title: "Ratio sent", short: "ratio", height: 90, log: true },
    { key: "accuracy", title: "Accuracy (%)", short: "accuracy %", height: 110, points: true, scale: 100, fit: true },
    { key: "sent", title: "Bottleneck, delivered (Mbit/s)", short: "Mbit/s", height: 110, rate: true },
    { key: "backlog", title: "Bottleneck, backlog (kB)", short: "kB queued", height: 100 },
  ];
  const LEFT = 46, RIGHT = 8, GAP = 30;
  const hidden = new Set();
  let group = groups[0], from = 0, until = 0, shown = [];

  const make = (name, attributes, parent, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const say = (value) => (value === null || value === undefined ? "-" : Number(value.toPrecision(3)).toString());

  // A run's series as pairs of time and value; windows are equal parts of its time, drawn at their middles.
  const points = (run, panel) => {
    const values = run[panel.key] || [];
    const scale = panel.scale || 1;
    if (panel.points) return values.map(([t, v]) => [t, v * scale]);
    return values.map((v, i) => [((i + 0.5) * run.end) / values.length, v === null ? null : v * scale]);
  };
  const valueAt = (run, panel, t) => {
    const all = points(run, panel);
    if (!all.length || t > run.end) return null;
    if (panel.points) return all.filter(([at]) => at <= t).map(([, v]) => v).pop() ?? null;
    return all[Math.min(all.length - 1, Math.floor((t / run.end) * all.length))][1];
  };
  const niceTicks = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const ticks = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) ticks.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
    return ticks;
  };

  const draw = () => {
    const width = $("viewer").clientWidth, runs = group.runs.filter((run) => !hidden.has(run.run));
    shown = PANELS.filter((panel) => group.runs.some((run) => points(run, panel).some(([, v]) => v !== null)));
    const height = shown.reduce((sum, panel) => sum + panel.height + GAP, 18);
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "runs over time" });
    const x = (t) => LEFT + ((t - from) / (until - from)) * (width - LEFT - RIGHT);
    const inside = ([t]) => t >= from - (until - from) / 100 && t <= until; // the first evaluation is a moment before the first step
    let top = 18;
    for (const panel of shown) {
      const lines = runs.map((run) => [run, points(run, panel)]);
      const values = lines.flatMap(([, all]) => all.filter(inside).map(([, v]) => v).filter((v) => v !== null && (!panel.log || v > 0)));
      const largest = Math.max(...values, panel.log ? 0.001 : 1e-9);
      const steps = (run) => (panel.rate && run.rate) || [];
      const rates = runs.flatMap((run) => steps(run).map(([, r]) => r)).filter((r) => r < 4 * largest);
      let high = Math.max(largest, ...rates) * 1.05, low = panel.fit ? Math.min(...values, high) : 0;
      if (panel.log) { high = Math.max(1, largest); low = Math.min(...values, 0.1) / 1.3; }
      const y = panel.log
        ? (v) => top + panel.height * (1 - Math.log(v / low) / Math.log(high / low))
        : (v) => top + panel.height * (1 - (v - low) / (high - low || 1));
      const powers = [1, 0.1, 0.01, 0.001, 0.0001].filter((tick) => tick >= low && tick <= high);
      for (const tick of panel.log ? powers : niceTicks(low, high, 4)) {
        make("line", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), stroke: "#e4e4e4" }, svg);
        make("text", { x: LEFT - 5, y: y(tick) + 4, "text-anchor": "end" }, svg, say(tick));
      }
      const clip = `clip-${panel.key}`;
      make("rect", { x: LEFT, y: top - 2, width: width - LEFT - RIGHT, height: panel.height + 4 }, make("clipPath", { id: clip }, svg));
      const inner = make("g", { "clip-path": `url(#${clip})` }, svg);
      const drawnRates = new Set();
      for (const run of runs) {
        const level = steps(run).filter(([, r]) => r < 4 * largest || r <= high);
        const path = level.map(([t, r], i) => `${i ? `H${x(t)}V` : `M${x(t)},`}${y(r)}`).join("") + (level.length ? `H${x(run.end)}` : "");
        if (path && !drawnRates.has(path)) make("path", { d: path, fill: "none", stroke: "#aaa", "stroke-width": 1.2 }, inner);
        drawnRates.add(path);
      }
      for (const [run, all] of lines) {
        let path = "", pen = "M";
        for (const [t, v] of all) {
          if (v === null || (panel.log && v <= 0)) { pen = "M"; continue; }
          path += `${pen}${x(t).toFixed(1)},${y(v).toFixed(1)}`;
          pen = "L";
        }
        const look = { fill: "none", stroke: run.colour, "stroke-width": 1.6, "data-run": run.run };
        if (path) make("path", { d: path, ...look, ...(run.valid ? {} : { "stroke-dasharray": "4 3", opacity: 0.7 }) }, inner);
      }
      top += panel.height + GAP;
    }
    const bottom = top - GAP;
    for (const tick of niceTicks(from, until, width < 500 ? 4 : 8)) {
      make("text", { x: x(tick), y: bottom + 15, "text-anchor": "middle" }, svg, `${say(tick)} s`);
    }
    for (const t of new Set(runs.flatMap((run) => run.events.filter(inside).map(([at]) => Math.round(at * 5) / 5)))) {
      make("line", { x1: x(t), x2: x(t), y1: 18, y2: bottom, stroke: "#888", "stroke-dasharray": "1 3" }, svg);
    }
    shown.reduce((at, panel) => {
      make("text", { x: LEFT, y: at - 7, class: "title" }, svg, panel.title);
      return at + panel.height + GAP;
    }, 18);
    const band = make("rect", { y: 18, height: bottom - 18, width: 0, fill: "#1f5fa8", opacity: 0.12 }, svg);
    const cursor = make("line", { y1: 18, y2: bottom, stroke: "#222", visibility: "hidden" }, svg);
    watch(svg, width, cursor, band);
    const moment = document.createElement("div");
    moment.id = "moment";
    moment.className = "wide";
    $("viewer").replaceChildren(svg, moment);
    $("reset").hidden = from === 0 && until === longest();
  };

  const longest = () => Math.max(...group.runs.flatMap((run) => [run.end, ...run.accuracy.map(([t]) => t)]));
  const watch = (svg, width, cursor, band) => {
    let start = null;
    const timeAt = (event) => {
      const place = event.clientX - svg.getBoundingClientRect().left;
      return Math.min(until, Math.max(from, from + ((place - LEFT) / (width - LEFT - RIGHT)) * (until - from)));
    };
    const place = (t) => LEFT + ((t - from) / (until - from)) * (width - LEFT - RIGHT);
    svg.addEventListener("pointerdown", (event) => { start = timeAt(event); });
    svg.addEventListener("pointermove", (event) => {
      const t = timeAt(event);
      cursor.setAttribute("x1", place(t));
      cursor.setAttribute("x2", place(t));
      cursor.setAttribute("visibility", "visible");
      if (start !== null && event.pointerType === "mouse") {
        band.setAttribute("x", place(Math.min(start, t)));
        band.setAttribute("width", Math.abs(place(t) - place(start)));
      }
      tell(t);
    });
    svg.addEventListener("pointerup", (event) => {
      const t = timeAt(event), begun = start;
      start = null;
      tell(t);
      if (begun === null || event.pointerType !== "mouse" || Math.abs(place(t) - place(begun)) < 8) return;
      [from, until] = [Math.min(begun, t), Math.max(begun, t)];
      draw();
    });
  };
  const tell = (t) => {
    const head = [`${t.toFixed(1)} s`, ...shown.map((panel) => panel.short)];
    const rows = group.runs.filter((run) => !hidden.has(run.run)).map((run) => [run.label, ...shown.map((panel) => say(valueAt(run, panel, t)))]);
    const near = (until - from) / 60;
    const events = new Set(group.runs.flatMap((run) => run.events.filter(([at]) => Math.abs(at - t) < near).map(([at, text]) => `${say(at)} s: ${text}`)));
    const line = (cells, tag) => {
      const row = document.createElement("tr");
      for (const text of cells) row.append(Object.assign(document.createElement(tag), { textContent: text }));
      return row;
    };
    const values = document.createElement("table");
    values.append(line(head, "th"), ...rows.map((cells) => line(cells, "td")));
    const happened = Object.assign(document.createElement("div"), { textContent: [...events].slice(0, 4).join("; ") });
    $("moment").replaceChildren(values, happened);
  };
  const choose = (index) => {
    group = groups[index];
    [from, until] = [0, longest()];
    $("legend").replaceChildren(...group.runs.map((run) => {
      const button = document.createElement("button");
      button.type = "button";
      const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
      swatch.style.background = run.colour;
      button.append(swatch, run.label + (run.valid ? "" : " (not valid)"));
      button.setAttribute("aria-pressed", !hidden.has(run.run));
      button.addEventListener("click", () => {
        hidden.has(run.run) ? hidden.delete(run.run) : hidden.add(run.run);
        button.setAttribute("aria-pressed", !hidden.has(run.run));
        draw();
      });
      return button;
    }));
    draw();
  };
  $("group").addEventListener("change", (event) => choose(event.target.value));
  $("reset").addEventListener("click", () => { [from, until] = [0, longest()]; draw(); });
  let width = 0;
  new ResizeObserver(() => { if ($("viewer").clientWidth !== width) { width = $("viewer").clientWidth; draw(); } }).observe($("viewer"));
  choose(0);
})();
