// The page of a run: its curves, and the attention of fixed examples at each evaluation.
import { at, data, decodeBytes, decodeWeights, drawPixels, make, request, showError, stateOf, thousands } from "./studio.js";
import { chart } from "./chart.js";
import { exampleName } from "./form.js";
import { heatControls, withImages } from "./heat.js";
import { showAxis } from "./views.js";

let run = data;
let newest = true; // the slider stays at the newest step until it is moved
let patch = -1; // cell of the image whose attention is shown
const cache = new Map();

const name = encodeURIComponent(run.name);
at("name").textContent = run.name;
at("look").href = `/look?model=${name}`;
at("try").href = `/try?model=${name}`;
at("replay").href = `/replay?model=${name}`;
at("replay").hidden = !run.replays;

const curves = () => {
  const last = run.steps.at(-1);
  at("about").textContent = `${run.task} on ${run.data}${last ? `, step ${thousands(last.step)}` : ""}`;
  at("state").className = run.running ? "live" : "soft";
  at("state").textContent = stateOf(run);
  const series = (records, name) => [{ name, points: records.filter((record) => name in record).map((record) => [record.step, record[name]]) }];
  at("charts").replaceChildren(
    ...run.losses.map((name) => chart(series(run.steps, name), { title: `training ${name.replace("_", ", ")}` })),
    ...run.metrics.map((name) => chart(series(run.evaluations, name), { title: `${name} (validation)` })),
    chart([{ name: "throughput", points: run.throughput }], { title: `${run.unit || "tokens"} per second` }),
  );
  at("outputs").hidden = !run.samples.length;
  at("samples").replaceChildren(...run.samples.slice(-3).reverse().map((sample) =>
    make("p", {}, make("small", {}, `step ${thousands(sample.step)}  `), make("span", { dir: "auto", className: "output" }, sample.text))));
};

const snapshot = async (step) => {
  if (!cache.has(step)) {
    const kept = await request(`/api/runs/${name}/attention/${step}`);
    for (const { maps, images } of kept.examples) withImages(maps, images);
    cache.set(step, kept);
  }
  return cache.get(step);
};
const options = (select, names) => {
  if (select.options.length === names.length && names.every((name, i) => select.options[i].text === name)) return;
  const before = select.value;
  select.replaceChildren(...names.map((name, i) => new Option(name, i)));
  select.value = names[before] === undefined ? String(Math.max(0, names.length - 1)) : before;
};

const show = async () => {
  at("snapshots").hidden = !run.snapshots.length;
  if (!run.snapshots.length) return;
  at("steps").max = run.snapshots.length - 1;
  if (newest) at("steps").value = run.snapshots.length - 1;
  const step = run.snapshots[Number(at("steps").value)];
  at("step").textContent = thousands(step);
  at("steps").setAttribute("aria-valuetext", `step ${step}`);
  try {
    const { examples } = await snapshot(step);
    options(at("example"), examples.map((_, i) => String(i + 1)));
    const example = examples[Number(at("example").value)] ?? examples[0];
    options(at("layer"), example.maps.map((map) => map.title));
    at("text").textContent = exampleName(example.inputs) + (example.output ? ` \u2192 ${example.output}` : "");
    heads(example.maps[Number(at("layer").value)] ?? example.maps[0]);
  } catch (error) {
    showError(error);
  }
};
const heads = (map) => {
  const [bytes, overImage] = [decodeBytes(map.weights), map.keys.kind === "grid"];
  const all = map.encoding === "uint16" ? decodeWeights(bytes.buffer) : bytes;
  const size = map.queries.labels.length * map.keys.labels.length;
  at("queries").hidden = at("heat").hidden = !overImage;
  if (overImage) queries(map.queries);
  at("heads").replaceChildren(...Array.from({ length: map.heads }, (_, head) => {
    const weights = all.subarray(head * size, (head + 1) * size);
    const picture = overImage ? heatMap(map, weights) : matrix(map, weights, head);
    return make("figure", {}, picture, make("figcaption", { className: "soft" }, map.heads > 1 ? `head ${head}` : map.title));
  }));
};
// Over an image one query is shown, or the mean of all: a word, a position before the grid, or a patch that was clicked.
const queries = ({ kind, labels, extra }) => {
  const single = labels.map((label, i) => [label, i]).slice(0, kind === "grid" ? extra.length : labels.length);
  const clicked = kind === "grid" && labels[patch] ? [[`patch ${labels[patch]}`, patch]] : [];
  const entries = [["mean of all", "mean"], ...single, ...clicked];
  const before = clicked.length ? String(patch) : at("query").value;
  at("query").replaceChildren(...entries.map(([label, value]) => new Option(label, value)));
  at("query").value = entries.some(([, value]) => String(value) === before) ? before : kind === "grid" && extra.length ? "0" : "mean";
};
const heatMap = (map, weights) => {
  const [axis, chosen] = [map.keys, at("query").value];
  const rows = chosen === "mean" ? Array.from({ length: map.queries.labels.length }, (_, i) => i) : [Number(chosen)];
  const values = axis.labels.map((_, i) => rows.reduce((sum, row) => sum + weights[row * axis.labels.length + i], 0) / rows.length);
  const cells = values.slice(axis.extra.length);
  const select = (i) => {
    patch = i;
    show();
  };
  const patches = map.queries.kind === "grid" ? { select, selected: chosen === "mean" ? -1 : Number(chosen) } : {};
  return showAxis({ axis, labels: axis.labels, values, largest: Math.max(...cells, 1e-6), side: 14, ...patches });
};
const matrix = (map, weights, head) => {
  const [rows, columns] = [map.queries.labels.length, map.keys.labels.length];
  const canvas = make("canvas", {});
  drawPixels(canvas, weights, columns, 255 / weights.reduce((largest, weight) => Math.max(largest, weight), 1));
  const side = Math.min(300, Math.max(120, 9 * Math.max(rows, columns)));
  Object.assign(canvas.style, { width: `${side}px`, height: `${(side * rows) / columns}px`, imageRendering: "pixelated" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `head ${head}: ${rows} by ${columns}`);
  canvas.title = `${map.queries.labels.join(" ")} \u2190 ${map.keys.labels.join(" ")}`;
  return canvas;
};

at("steps").oninput = () => {
  newest = Number(at("steps").value) === run.snapshots.length - 1;
  show();
};
at("example").onchange = at("layer").onchange = show;
at("query").onchange = () => {
  patch = -1;
  show();
};
at("heat").append(...heatControls());
addEventListener("theme", show);
const refresh = async () => {
  try {
    run = await request(`/api/runs/${name}`);
    showError();
    curves();
    await show();
  } catch (error) {
    showError(error);
  }
};
curves();
show();
setInterval(() => document.hidden || !run.running || refresh(), 2000);
