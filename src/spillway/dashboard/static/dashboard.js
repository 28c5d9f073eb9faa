"use strict";
// Reads /api/overview, /api/queries/ID and the event stream /api/events; draws with uPlot.
// Text from outside goes into the page as text only (textContent), never as HTML.

const RECENT = 600, SPARK = 60, COLORS = 9, WHOLE_EVERY_MS = 5000, RETRY_MS = 1500;
const el = (id) => document.getElementById(id);
const cards = new Map();      // id -> what is known of a query, and its element in the list
let columns = [], place = {}, chosen = null, span = "live", data = null, plots = [], asked = 0, dirty = false;
let ahead = 0;                // seconds that the server's clock is ahead of this one

// ---- numbers in words ----

const none = (v) => v === null || v === undefined || Number.isNaN(v);
const digits = (v, n) => v.toLocaleString("en-GB", { maximumSignificantDigits: n });
const seconds = (v) => none(v) ? "–" : v < 1 ? `${digits(v * 1000, 3)} ms` : v < 120 ? `${digits(v, 3)} s` : `${digits(v / 60, 3)} min`;
const percent = (v) => none(v) ? "–" : `${v > 0 && v < 0.01 ? digits(v * 100, 2) : (v * 100).toFixed(v > 0.99 && v < 1 ? 1 : 0)} %`;
function rows(v) {
  if (none(v)) return "–";
  const [by, unit] = v >= 1e9 ? [1e9, " G"] : v >= 1e6 ? [1e6, " M"] : v >= 1e4 ? [1e3, " k"] : [1, ""];
  return digits(v / by, v < 1e4 ? 4 : 3) + unit;
}
const clock = (s) => new Date(s * 1000).toLocaleTimeString("en-GB");
const day = (s) => new Date(s * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
// Times of day on an axis; the day where it changes, seconds only where they differ.
function times(u, splits, axis, space, step) {
  return splits.map((s, i) => i && day(s) !== day(splits[i - 1]) || step >= 86400 ? day(s) : clock(s).slice(0, step < 60 ? 8 : 5));
}
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const HELD = { average: "latency_mean", p99: "latency_p99", each: "latency_max" };
const SAID = { average: "average", p99: "99th percentile", each: "every row" };

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// ---- the state of a query ----

function last(card) { return card.spark.length ? card.spark[card.spark.length - 1] : null; }
function value(card, name) { const row = last(card); return row ? row[place[name]] : null; }
function bounded(card) { return value(card, HELD[card.objective] || "latency_mean"); }
function state(card) {
  if (!last(card)) return "idle";
  const age = Date.now() / 1000 + ahead - value(card, "at_s");
  if (age > Math.max(60, 10 * value(card, "duration"))) return "idle";
  if (!none(card.limit_s) && bounded(card) > card.limit_s) return "missed";
  return value(card, "share") < 1 || card.off.length ? "shedding" : "held";
}
const NAMES = { idle: "idle", missed: "objective missed", shedding: "shedding", held: "all kept" };

// ---- the list ----

function drawCard(card) {
  if (!card.element) {
    card.element = node("a", { class: "card", href: `#${card.id}` }, node("span", { class: "dot" }), node("b"), node("span", { class: "now" }), node("canvas"), node("small"));
    el("list").append(card.element);
  }
  const [, name, now, canvas, words] = card.element.children;
  card.element.className = `card ${state(card)}`;
  card.element.setAttribute("aria-current", String(card.id === chosen));
  name.textContent = name.title = card.name;
  now.textContent = last(card) ? `${seconds(bounded(card))} · ${percent(value(card, "share"))}` : "no batch yet";
  words.textContent = words.title = card.words;
  drawSpark(canvas, card);
}

function drawSpark(canvas, card) {
  const width = canvas.clientWidth || 250, height = 30, scale = devicePixelRatio || 1;
  canvas.width = width * scale; canvas.height = height * scale;
  const pen = canvas.getContext("2d"), at = place[HELD[card.objective] || "latency_mean"];
  const values = card.spark.map((row) => row[at]), known = values.filter((v) => !none(v));
  if (!known.length) return;
  pen.scale(scale, scale);
  const top = 1.1 * Math.max(...known, card.limit_s || 0) || 1;
  const y = (v) => height - 2 - (height - 4) * v / top, x = (i) => 1 + (width - 2) * (values.length > 1 ? i / (values.length - 1) : 1);
  if (!none(card.limit_s)) line(pen, [[0, y(card.limit_s)], [width, y(card.limit_s)]], color("--limit"), 1, [4, 3]);
  line(pen, values.map((v, i) => [x(i), none(v) ? null : y(v)]).filter(([, v]) => v !== null), color("--c1"), 1.5, []);
}

function line(pen, points, stroke, width, dash) {
  pen.beginPath(); pen.setLineDash(dash); pen.strokeStyle = stroke; pen.lineWidth = width;
  points.forEach(([x, y], i) => i ? pen.lineTo(x, y) : pen.moveTo(x, y));
  pen.stroke();
}

function drawSummary() {
  const states = [...cards.values()].map(state), count = (which) => states.filter((s) => s === which).length;
  const parts = [`${cards.size} ${cards.size === 1 ? "query" : "queries"}`];
  if (count("shedding")) parts.push(`${count("shedding")} shedding`);
  if (count("missed")) parts.push(`${count("missed")} over the objective`);
  if (count("idle")) parts.push(`${count("idle")} idle`);
  el("summary").textContent = parts.join(" · ");
  el("empty").hidden = cards.size > 0;
}

// ---- one query ----

function drawHead() {
  const card = cards.get(chosen);
  const now = state(card), bound = card.objective ? `${SAID[card.objective]} ≤ ${seconds(card.limit_s)}` : "no latency objective";
  el("name").textContent = card.name;
  document.title = `${card.name} · Spillway`;
  el("state").className = `pill ${now}`;
  el("state").textContent = NAMES[now];
  el("words").textContent = card.words;
  const over = now === "missed" ? "bad" : "", shed = value(card, "share") < 1 ? "warn" : "";
  const [batches, came, kept] = card.counted || [null, null, null];
  tiles([
    ["Latency, mean", seconds(value(card, "latency_mean")), bound, card.objective === "average" ? over : ""],
    ["Latency, p99", ...worstOf(card), card.objective === "average" ? "" : over],
    ["Rows in", `${rows(value(card, "rate"))}/s`, `kept ${rows(value(card, "kept"))}/s`, ""],
    ["Kept, this batch", percent(value(card, "share")), card.off.length ? `without ${card.off.join(", ")}` : `batch ${card.batch_id ?? "–"}`, shed],
    ["SIC", percent(value(card, "sic")), "of input in results", ""],
    ["Backlog", rows(value(card, "backlog")), "rows not read yet", ""],
    ["Work", seconds(value(card, "spent")), `allowed ${seconds(value(card, "allowed"))}`, ""],
    ["Cost model off by", percent(value(card, "cost_error")), card.cost ? card.cost.keys ? `${rows(card.cost.keys)} keys known` : `${rows(card.cost.rows)} rows known` : "nothing known yet", ""],
    [none(batches) ? "In all" : `In all ${rows(batches)} batches`, rows(came), none(came) ? "reading the books …" : `rows, ${percent(came ? kept / came : 1)} kept`, ""],
  ]);
  el("alarms").replaceChildren(...card.alarms.slice().reverse().map((alarm) => {
    const when = node("time");
    when.textContent = clock(alarm.at_s);
    const kind = node("b"), text = node("span");
    kind.textContent = alarm.kind; text.textContent = alarm.text;
    return node("li", {}, when, kind, text);
  }));
}

// Where p99 is not measured the worst row bounds it, and the tile says so.
function worstOf(card) {
  const p99 = value(card, "latency_p99"), worst = value(card, "latency_max");
  if (!none(p99)) return [seconds(p99), `worst row ${seconds(worst)}`];
  return none(worst) ? ["–", "not measured"] : [`≤ ${seconds(worst)}`, "not measured; worst row"];
}

function tiles(wanted) {
  el("tiles").replaceChildren(...wanted.map(([title, big, small, mark]) => {
    const dt = node("dt"), dd = node("dd"), more = node("small");
    dt.textContent = title; dd.textContent = big; more.textContent = more.title = small;
    dd.append(more);
    return node("div", mark ? { class: mark } : {}, dt, dd);
  }));
}

const CHARTS = [
  { title: "Latency", note: "of kept rows, from arrival to the end of their batch", format: seconds, lines: [["mean", "latency_mean", "--c1", { fill: true }], ["p99", "latency_p99", "--c2", {}], ["worst row", "latency_max", "--c9", { width: 1 }], ["objective", "limit", "--limit", { dash: [6, 4] }]], unmeasured: ["latency_p99", "p99 is not measured, it is at most the worst row"] },
  { title: "Rows a second", note: "what came, and what was kept of it", format: rows, lines: [["in", "rate", "--c2", {}], ["kept", "kept", "--c1", { fill: true }]] },
  { title: "Share kept", note: "of the batch, and of the last window's input (SIC)", format: percent, share: true, lines: [["kept", "share", "--c1", { fill: true }], ["SIC", "sic", "--c4", {}], ["accuracy", "accuracy", "--c5", {}]] },
  { title: "Kept, by stratum or subtask", note: "share of its rows that was kept, or that it ran on", format: percent, share: true, lines: [], parts: true },
  { title: "Work of a batch", note: "what its rows needed, were allowed and took", format: seconds, lines: [["needed", "needed", "--c9", {}], ["allowed", "allowed", "--c3", {}], ["spent", "spent", "--c1", { fill: true }]] },
  { title: "Backlog", note: "rows that wait in the source", format: rows, lines: [["rows", "backlog", "--c3", { fill: true }]] },
  { title: "Cost model", note: "how far a batch's duration lay from the forecast", format: percent, lines: [["off by", "cost_error", "--c4", { fill: true }]] },
];

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function linesOf(chart) {
  const lines = chart.parts ? data.parts.map((name, i) => [name, columns.length + i, `--c${i % COLORS + 1}`, {}]) : chart.lines.map(([label, name, ...rest]) => [label, place[name], ...rest]);
  return lines.filter(([, at]) => data.rows[at] && data.rows[at].some((v) => v !== null));
}

// The band between least and greatest of every stretch of a thinned history: two more series.
function bandOf(chart, lines) {
  if (!data.bands || chart.parts || data.batches_each === 1) return null;
  const name = chart.lines[0][1], at = data.bands.names.indexOf(name);
  return at >= 0 && lines.length && lines[0][1] === place[name] ? [data.bands.greatest[at], data.bands.least[at]] : null;
}

function drawCharts() {
  plots.forEach((plot) => plot.drawing.destroy());
  plots = [];
  const boxes = CHARTS.map((chart) => drawChart(chart)).filter(Boolean);
  el("charts").replaceChildren(...boxes.map(([box]) => box));
  boxes.forEach(([box, make]) => make(box));
  const each = data.batches_each;
  el("foot").textContent = span === "all" ? `Whole history${each > 1 ? `, ${each.toLocaleString("en-GB")} batches a point with least and greatest` : ""}${data.loaded ? "" : "; still reading"}.` : `The last ${data.rows[0].length} batches, one by one.`;
}

function drawChart(chart) {
  const lines = linesOf(chart), band = bandOf(chart, lines);
  if (!lines.length) return null;
  const title = node("h2"), note = node("p"), box = node("section", { class: "chart" }, title, note);
  const missing = chart.unmeasured && !lines.some(([, at]) => at === place[chart.unmeasured[0]]);
  title.textContent = chart.title; note.textContent = missing ? `${chart.note}; ${chart.unmeasured[1]}` : chart.note;
  const make = () => {
    const drawing = new uPlot(options(chart, lines, band, box.clientWidth - 22), values(lines, band), box);
    plots.push({ drawing, box, lines, chart });
  };
  return [box, make];
}

const values = (lines, band) => [data.rows[0], ...lines.map(([, at]) => data.rows[at]), ...(band || [])];

function options(chart, lines, band, width) {
  const shown = (u, v) => chart.format(v), axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 }, font: "12px system-ui" };
  const series = lines.map(([label, , name, more]) => ({ label, stroke: color(name), width: more.width || 1.75, dash: more.dash, fill: more.fill && !band ? `${color(name)}20` : undefined, value: shown, spanGaps: true, points: { show: data.rows[0].length < 3 } }));
  const hidden = { width: 0, stroke: "transparent", points: { show: false }, spanGaps: true, value: shown };
  if (band) series.push({ ...hidden, label: "greatest" }, { ...hidden, label: "least" });
  return {
    width, height: 170, series: [{ value: (u, v) => none(v) ? "–" : clock(v) }, ...series],
    bands: band ? [{ series: [series.length - 1, series.length], fill: `${color(lines[0][2])}30` }] : [],
    scales: { x: { time: true }, y: { range: (u, low, high) => chart.share ? [0, 1.02] : [0, high > 0 ? 1.08 * high : 1] } },
    axes: [{ ...axis, size: 30, values: times, incrs: STEPS }, { ...axis, size: 64, values: (u, splits) => splits.map(chart.format) }],
    cursor: { sync: { key: "spillway" }, points: { size: 6 } }, legend: { live: true },
    hooks: { setCursor: [(u) => u.cursor.idx === null && latest(u)], ready: [latest] },
  };
}

// Where nothing is pointed at, the legend tells the last batch.
function latest(u) { if (u.data[0].length) u.setLegend({ idx: u.data[0].length - 1 }, false); }

function refresh() {
  const kept = plots.every(({ chart, lines }) => linesOf(chart).length === lines.length) && CHARTS.filter((chart) => linesOf(chart).length).length === plots.length;
  if (!kept) return drawCharts();
  plots.forEach(({ drawing, lines, chart }) => { drawing.setData(values(lines, bandOf(chart, lines))); if (drawing.cursor.idx === null || drawing.cursor.idx === undefined) latest(drawing); });
  if (span === "live") el("foot").textContent = `The last ${data.rows[0].length} batches, one by one.`;
}

// ---- asking and hearing ----

async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(answer.status === 401 ? "the token is no longer valid: open the printed address" : `answer ${answer.status}`);
  return answer.json();
}

async function readAll() {
  const told = await ask("/api/overview");
  columns = told.columns;
  ahead = told.now_s - Date.now() / 1000;
  place = Object.fromEntries(columns.map((name, i) => [name, i]));
  const known = new Set(told.queries.map((query) => query.id));
  for (const [id, card] of cards) if (!known.has(id)) { card.element.remove(); cards.delete(id); }
  for (const query of told.queries) cards.set(query.id, { ...cards.get(query.id), ...query });
  cards.forEach(drawCard);
  drawSummary();
  await choose();
}

async function choose() {
  const wanted = location.hash.slice(1), only = cards.size && matchMedia("(min-width: 52.01rem)").matches || cards.size === 1 ? [...cards.keys()][0] : null;
  chosen = cards.has(wanted) ? wanted : only;
  document.body.classList.toggle("chosen", chosen !== null);
  el("detail").hidden = chosen === null;
  cards.forEach((card) => card.element.setAttribute("aria-current", String(card.id === chosen)));
  if (chosen === null) { document.title = "Spillway"; return; }
  drawHead();
  await readDetail(true);
}

async function readDetail(anew) {
  const turn = ++asked, found = await ask(`/api/queries/${chosen}?span=${span}`);
  if (turn !== asked) return;           // another was chosen meanwhile
  data = found;
  dirty = false;
  if (anew) drawCharts(); else refresh();
}

function hear(updates) {
  for (const update of updates) {
    const card = cards.get(update.id);
    if (!card) continue;
    const { points, ...now } = update;
    Object.assign(card, now, { spark: [...card.spark, ...points].slice(-SPARK) });
    drawCard(card);
    if (card.id === chosen) { drawHead(); append(points, now.parts); }
  }
  drawSummary();
}

function append(points, parts) {
  if (span === "all" || !data) { dirty = true; return; }
  data.parts = parts;
  for (const point of points) if (point[0] > (data.rows[0].at(-1) ?? 0)) point.forEach((v, i) => data.rows[i].push(v));
  data.rows.forEach((column) => column.splice(0, Math.max(column.length - RECENT, 0)));
  refresh();
}

function link(name, text) { el("link").className = `link ${name}`; el("link").textContent = text; }

function listen() {
  const source = new EventSource("/api/events");
  const again = (why) => { source.close(); link("lost", why); setTimeout(start, RETRY_MS); };
  source.addEventListener("hello", () => link("live", "live"));
  source.addEventListener("batches", (event) => hear(JSON.parse(event.data)));
  source.addEventListener("reset", () => readAll().catch((error) => again(error.message)));
  source.onerror = () => again("reconnecting");
}

async function start() {
  try { await readAll(); listen(); } catch (error) { link("lost", error.message.startsWith("the token") ? error.message : "reconnecting"); setTimeout(start, RETRY_MS); }
}

// ---- light and dark, size, choices ----

const system = matchMedia("(prefers-color-scheme: dark)");
function theme(name) { document.documentElement.dataset.theme = name; if (cards.size) { cards.forEach(drawCard); if (data) drawCharts(); } }
function saved() { try { return localStorage.getItem("spillway-theme"); } catch { return null; } }
theme(saved() || (system.matches ? "dark" : "light"));
system.addEventListener("change", () => saved() || theme(system.matches ? "dark" : "light"));
el("theme").addEventListener("click", () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  try { localStorage.setItem("spillway-theme", document.documentElement.dataset.theme); } catch { /* private window */ }
});
document.querySelectorAll("[data-span]").forEach((button) => button.addEventListener("click", () => {
  span = button.dataset.span;
  document.querySelectorAll("[data-span]").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  readDetail(true).catch(() => {});
}));
addEventListener("hashchange", () => choose().catch(() => {}));
addEventListener("resize", () => { plots.forEach(({ drawing, box }) => drawing.setSize({ width: box.clientWidth - 22, height: 170 })); cards.forEach((card) => drawSpark(card.element.children[3], card)); });
setInterval(() => { cards.forEach((card) => { card.element.className = `card ${state(card)}`; }); drawSummary(); if (chosen && cards.get(chosen)) drawHead(); }, 10000);
setInterval(() => { if (dirty && chosen) readDetail(false).catch(() => {}); }, WHOLE_EVERY_MS);
start();
