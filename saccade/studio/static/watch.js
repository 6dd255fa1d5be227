// The page of a run: its curves, and the attention of fixed examples at each evaluation.
import { at, data, decodeBytes, drawPixels, make, request, showError, stateOf, thousands } from "./studio.js";
import { chart } from "./chart.js";
import { exampleName } from "./form.js";
import { showAxis } from "./views.js";

let run = data;
let newest = true; // the slider stays at the newest step until it is moved
const cache = new Map();

const name = encodeURIComponent(run.name);
at("name").textContent = run.name;
at("look").href = `/look?model=${name}`;
at("try").href = `/try?model=${name}`;

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
  if (!cache.has(step)) cache.set(step, await request(`/api/runs/${name}/attention/${step}`));
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
    options(at("layer"), example.maps.map((map) => map.name));
    at("text").textContent = exampleName(example.inputs) + (example.output ? ` \u2192 ${example.output}` : "");
    heads(example.maps[Number(at("layer").value)] ?? example.maps[0]);
  } catch (error) {
    showError(error);
  }
};
const heads = (map) => {
  const [rows, columns, all] = [map.queries.labels.length, map.keys.labels.length, decodeBytes(map.weights)];
  const size = rows * columns;
  at("heads").replaceChildren(...Array.from({ length: map.heads }, (_, head) => {
    const weights = all.subarray(head * size, (head + 1) * size);
    const picture = map.keys.kind === "grid" ? overImage(map.keys, weights, rows) : matrix(map, weights, head);
    return make("figure", {}, picture, make("figcaption", { className: "soft" }, `head ${head}`));
  }));
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
// Over an image the mean of all queries is shown.
const overImage = (axis, weights, rows) => {
  const values = axis.labels.map((_, i) => {
    let sum = 0;
    for (let row = 0; row < rows; row++) sum += weights[row * axis.labels.length + i];
    return sum / rows / 255;
  });
  return showAxis({ axis, labels: axis.labels, values, largest: Math.max(...values, 1e-6) });
};

at("steps").oninput = () => {
  newest = Number(at("steps").value) === run.snapshots.length - 1;
  show();
};
at("example").onchange = at("layer").onchange = show;
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
