// Watch: one run as it learns: its curves, and the attention of fixed examples at each evaluation.
import { ask, at, bytes, data, large, make, pixels, say, stateOf } from "./common.js";
import { chart } from "./chart.js";

let run = data;
let follow = true; // the slider stays at the newest step until somebody moves it
const cache = new Map();

const where = encodeURIComponent(run.name);
at("name").textContent = run.name;
at("look").href = `/look?model=${where}`;
at("try").href = `/try?model=${where}`;

const curves = () => {
  const last = run.steps.at(-1);
  at("about").textContent = `${run.task} on ${run.data}${last ? `, step ${large(last.step)}` : ""}`;
  at("state").className = run.running ? "live" : "soft";
  at("state").textContent = stateOf(run);
  const skip = ["step", "elapsed", "best", "pairs", "rows", "tokens", "questions", "sentences", "hidden"];
  const names = [...new Set(run.scores.flatMap(Object.keys))].filter((name) => !skip.includes(name));
  at("charts").replaceChildren(
    chart([{ name: "loss", points: run.steps.map((one) => [one.step, one.loss]) }], { title: "training loss" }),
    ...names.map((name) => chart([{ name, points: run.scores.filter((one) => name in one).map((one) => [one.step, one[name]]) }], { title: `${name} (validation)` })),
    chart([{ name: "speed", points: run.speed }], { title: "tokens a second" }),
  );
  at("written").hidden = !run.samples.length;
  at("samples").replaceChildren(...run.samples.slice(-3).reverse().map((one) =>
    make("p", {}, make("small", {}, `step ${large(one.step)}  `), make("span", { dir: "auto", className: "answer" }, one.text))));
};

const glimpse = async (step) => {
  if (!cache.has(step)) cache.set(step, await ask(`/api/runs/${where}/attention/${step}`));
  return cache.get(step);
};
const options = (select, names) => {
  if (select.options.length === names.length && names.every((name, i) => select.options[i].text === name)) return;
  const before = select.value;
  select.replaceChildren(...names.map((name, i) => new Option(name, i)));
  select.value = names[before] === undefined ? String(Math.max(0, names.length - 1)) : before;
};

const show = async () => {
  at("seen").hidden = !run.seen.length;
  if (!run.seen.length) return;
  at("steps").max = run.seen.length - 1;
  if (follow) at("steps").value = run.seen.length - 1;
  const step = run.seen[Number(at("steps").value)];
  at("step").textContent = large(step);
  at("steps").setAttribute("aria-valuetext", `step ${step}`);
  try {
    const found = await glimpse(step);
    options(at("example"), found.examples.map((_, i) => String(i + 1)));
    const example = found.examples[Number(at("example").value)] ?? found.examples[0];
    options(at("layer"), example.maps.map((map) => map.name));
    at("text").textContent = example.output ? `${example.input} \u2192 ${example.output}` : example.input;
    heads(example.maps[Number(at("layer").value)] ?? example.maps[0]);
  } catch (error) {
    say(at("said"), error);
  }
};
const heads = (map) => {
  const [rows, columns, all] = [map.queries.length, map.keys.length, bytes(map.weights)];
  const size = rows * columns;
  at("heads").replaceChildren(...Array.from({ length: map.heads }, (_, head) => {
    const canvas = make("canvas", { className: "seen" });
    const part = all.subarray(head * size, (head + 1) * size);
    const most = part.reduce((one, two) => Math.max(one, two), 1);
    pixels(canvas, part, columns, 255 / most);
    const side = Math.min(300, Math.max(120, 9 * Math.max(rows, columns)));
    Object.assign(canvas.style, { width: `${side}px`, height: `${(side * rows) / columns}px`, imageRendering: "pixelated" });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `head ${head}: ${rows} by ${columns}`);
    canvas.title = `${map.queries.join(" ")} \u2190 ${map.keys.join(" ")}`;
    return make("figure", {}, canvas, make("figcaption", { className: "soft" }, `head ${head}`));
  }));
};

at("steps").oninput = () => {
  follow = Number(at("steps").value) === run.seen.length - 1;
  show();
};
at("example").onchange = at("layer").onchange = show;
addEventListener("theme", show);
const refresh = async () => {
  try {
    run = await ask(`/api/runs/${where}`);
    say(at("said"));
    curves();
    await show();
  } catch (error) {
    say(at("said"), error);
  }
};
curves();
show();
setInterval(() => document.hidden || !run.running || refresh(), 2000);
