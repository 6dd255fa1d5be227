// The Heads page: start a survey, follow it, and show every head over all rows.
import { at, data, decodeBytes, digits, drawPixels, listModels, make, number, query, request, showError, thousands, updateAddress } from "./studio.js";
import { rove } from "./roving.js";
import { shorten } from "./search.js";

const EVERY = 300; // milliseconds between two questions about the progress
const cost = (head) => head.cost?.mean ?? -Infinity;
const isNamed = ({ pattern, scores }) => pattern in scores; // mixed, broad and peaked heads have none
const SORTS = {
  pattern: ["pattern", (a, b) => isNamed(b) - isNamed(a) || a.pattern.localeCompare(b.pattern) || b.share - a.share],
  layer: ["layer and head", () => 0],
  entropy: ["entropy, sharpest first", (a, b) => a.entropy.mean - b.entropy.mean],
  distance: ["distance, farthest first", (a, b) => (b.distance?.mean ?? -1) - (a.distance?.mean ?? -1)],
  cost: ["ablation cost, largest first", (a, b) => cost(b) - cost(a)],
};
const percent = (part) => `${Number((100 * part).toFixed(part < 0.1 ? 1 : 0))} %`;
const spread = ({ mean, deviation }, count = 2) => `${number(mean, count)} \u00b1 ${number(deviation, 2)}`;
let report = null;
let asked = null; // what the report answers
let chosen = null; // the head whose details are shown

// The form.
const shown = () => {
  const { value } = at("source");
  at("texts").hidden = at("texts-label").hidden = value !== "texts";
  at("file").parentElement.hidden = value !== "file";
};
// A model without data needs texts.
const offer = () => {
  const isRun = data.runs.includes(at("model").value);
  at("source").options[0].disabled = !isRun;
  at("source").options[2].disabled = !data.files.length;
  if (!isRun && at("source").value === "validation") at("source").value = "texts";
  shown();
};
const busy = (on) => {
  at("submit").disabled = on;
  at("progress").hidden = !on;
};
const progress = (fraction, body) => {
  at("bar").value = fraction;
  at("done").textContent = fraction ? `${Math.floor(100 * fraction)} %` : body ? "Reading the rows\u2026" : "";
};
const body = (head) => ({
  model: at("model").value, source: at("source").value, texts: at("source").value === "texts" ? at("texts").value : "",
  file: at("source").value === "file" ? at("file").value : "", rows: Number(at("rows").value), ablations: Number(at("ablations").value),
  ...(head ? { map: head.map, head: head.head } : {}),
});
const link = (extra = {}) => {
  const { model, source, file, rows, ablations, map = "", head = "" } = asked;
  updateAddress({ model, source, file, rows, ablations, map, head: map ? head : "", sort: at("sort").value, pattern: at("pattern").value, ...extra });
};
const follow = async (id) => {
  for (;;) {
    const job = await request(`/api/heads/${id}`);
    progress(job.fraction, true);
    if (job.state === "done") return job.report;
    if (job.state === "cancelled") throw new Error("Cancelled. Nothing was kept.");
    if (job.state === "failed") throw new Error(job.error);
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
};
let current = ""; // job
const compute = async (event, head = null) => {
  event?.preventDefault();
  if (!at("model").value) return;
  const wanted = body(head);
  busy(true);
  progress(0, true);
  showError();
  try {
    const job = await request("/api/heads", wanted);
    current = job.job;
    const answer = await follow(job.job);
    asked = wanted;
    show(answer);
    link();
  } catch (error) {
    showError(error);
  } finally {
    busy(false);
    current = "";
  }
};

// The results.
const show = (answer) => {
  report = answer;
  const titles = shorten(report.heads.map((head) => head.title));
  report.heads.forEach((head, i) => { head.short = titles[i]; });
  at("empty").hidden = true;
  at("results").hidden = false;
  const heads = report.heads.length;
  const ablated = report.heads.find((head) => head.cost)?.cost.count;
  const lost = ablated ? ` Ablation cost: what the answer loses in ${report.quantity} without the head, mean \u00b1 standard deviation over ${thousands(ablated)} rows.` : "";
  at("summary").textContent = `${heads === 1 ? "One head" : `${heads} heads`} over ${thousands(report.rows)} rows, measured at ${number(report.rows_per_second)} rows per second.${lost}`;
  at("notes").replaceChildren(...report.notes.map((note) => make("p", { className: "soft" }, note)));
  const names = [...new Set(report.heads.map((head) => head.pattern))].sort();
  const { value } = at("pattern");
  at("pattern").replaceChildren(new Option("all", ""), ...names.map((name) => new Option(`${name} (${report.heads.filter((head) => head.pattern === name).length})`, name)));
  at("pattern").value = names.includes(value) ? value : "";
  for (const option of at("sort").options) option.disabled = option.value === "cost" && !ablated;
  drawScale();
  draw();
  document.body.dataset.surveyed = String(report.heads.length);
};
const drawScale = () => drawPixels(at("scale"), Array.from({ length: 64 }, (_, i) => Math.sqrt(i / 63)), 64);
const distribution = (head) => make("div", { className: "distribution" }, ...Object.values(head.patterns).map((count) => {
  const part = make("i", {});
  part.style.flexGrow = String(count);
  return part;
}));
const card = (head) => {
  const canvas = make("canvas", {});
  drawPixels(canvas, decodeBytes(head.picture), head.columns, 1);
  const lost = head.cost ? `cost ${spread(head.cost)}` : "";
  const distance = head.distance ? `, distance ${digits(head.distance.mean, 1)}` : "";
  const button = make("button", { type: "button", className: "head-card" }, canvas,
    make("b", {}, `${head.pattern} ${percent(head.share)}`), make("span", {}, `${head.short} \u00b7 head ${head.head}`),
    make("small", {}, `entropy ${digits(head.entropy.mean)}${distance}`, ...(lost ? [make("br"), lost] : [])), distribution(head));
  Object.assign(button.dataset, { map: head.map, head: head.head });
  button.setAttribute("aria-current", String(head === chosen));
  button.onclick = () => {
    detail(head);
    if (matchMedia("(max-width:60rem)").matches) at("detail").scrollIntoView();
  };
  return button;
};
const draw = () => {
  const { value: sort } = at("sort");
  const heads = report.heads.filter((head) => !at("pattern").value || head.pattern === at("pattern").value).sort(SORTS[sort][1]);
  at("cards").replaceChildren(...heads.map(card));
  rove(at("cards"), "button");
  if (!heads.includes(chosen)) chosen = heads[0];
  detail(chosen);
};

const line = (name, part, text) => {
  const fill = make("i", {});
  fill.style.width = `${100 * part}%`;
  return make("div", { className: "bar-line" }, make("span", {}, name), fill, make("small", {}, text));
};
// The example in Look: the same head, its cell pinned; positions are those of tokens.
const example = (head, { row, query: q, key, query_label: from, key_label: to, weight }) => {
  const inputs = report.inputs[row];
  const address = `/look?${query({ model: asked.model, ...inputs, view: "matrix", map: head.map, head: head.head, row: q, column: key, pin: 1, words: 0 })}`;
  return make("li", {}, make("a", { href: address }, make("b", {}, make("bdi", {}, from), " \u2192 ", make("bdi", {}, to)), ` ${digits(weight)}`),
    make("small", { dir: "auto" }, `row ${row}: ${Object.values(inputs).join(" | ")}`));
};
const detail = (head) => {
  chosen = head;
  for (const button of at("cards").children) button.setAttribute("aria-current", String(button.dataset.map === head?.map && Number(button.dataset.head) === head.head));
  if (!head) return at("detail").replaceChildren();
  const total = Object.values(head.patterns).reduce((sum, count) => sum + count, 0);
  const values = [["entropy", spread(head.entropy)], ...(head.distance ? [["distance", spread(head.distance)]] : []),
    ...(head.cost ? [["ablation cost", `${spread(head.cost)} (${thousands(head.cost.count)} rows)`]] : [])];
  const whole = make("button", { type: "button" }, "Ablate this head in every row");
  whole.onclick = () => compute(null, head);
  const every = make("button", { type: "button" }, "All heads");
  every.onclick = () => compute(null);
  const scores = Object.entries(head.scores).sort((a, b) => b[1] - a[1]);
  at("detail").replaceChildren(
    make("h2", {}, `${head.title} \u00b7 head ${head.head}`),
    make("dl", { className: "values" }, ...values.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)))),
    make("h3", {}, "Pattern, in rows"), ...Object.entries(head.patterns).map(([name, count]) => line(name, count / total, `${thousands(count)}, ${percent(count / total)}`)),
    ...(scores.length ? [make("h3", {}, "Mean weight of each kind of key")] : []), ...scores.map(([name, weight]) => line(name, Math.min(1, weight), digits(weight))),
    make("h3", {}, "Strongest between two words"), make("ol", { className: "examples" }, ...head.examples.map((entry) => example(head, entry))),
    make("div", { className: "row" }, ...(asked.map ? [every] : [whole])));
  return undefined;
};

at("form").onsubmit = compute;
at("cancel").onclick = () => current && request(`/api/heads/${current}/cancel`, {});
at("source").onchange = shown;
at("model").onchange = offer;
at("sort").onchange = at("pattern").onchange = () => {
  draw();
  link();
};
addEventListener("theme", () => report && (drawScale(), draw()));
const start = async () => {
  const { parameters } = data;
  at("sort").replaceChildren(...Object.entries(SORTS).map(([name, [text]]) => new Option(text, name)));
  at("file").replaceChildren(...data.files.map((name) => new Option(name)));
  at("rows").max = at("ablations").max = data.most_rows;
  const opened = listModels(at("model"), data.models, parameters.model);
  for (const name of ["source", "file", "rows", "ablations", "sort"]) if (parameters[name]) at(name).value = parameters[name];
  offer();
  document.body.dataset.ready = "1";
  if (data.running) {
    current = data.running;
    busy(true);
    try { await follow(current); } catch (error) { showError(error); }
    busy(false);
  }
  const complete = parameters.source === "validation" || (parameters.source === "file" && parameters.file);
  if (opened && complete) {
    await compute(null, parameters.map ? { map: parameters.map, head: Number(parameters.head) || 0 } : null);
    if (report && parameters.pattern) {
      at("pattern").value = parameters.pattern;
      draw();
    }
  }
};
start();
