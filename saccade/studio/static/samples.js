// The Samples page: images of a generator, images between two seeds, and where a clicked cell of an image looks.
import { at, data, decodeWeights, digits, listModels, make, query, request, showError, updateAddress } from "./studio.js";
import { heatControls, isSmall, withImages } from "./heat.js";
import { showAxis } from "./views.js";

const STEPS = 9; // images between two seeds
const SIDE = 20; // rem of a map
const state = { seed: 1, to: -1, position: 0, row: 0.5, column: 0.5 }; // of the chosen image, and of the clicked point
let prediction = null; // the chosen image with its maps
let latest = 0; // of several requests only the last is shown

const settings = () => ({ model: at("model").value, inputs: {} });
const options = (values) => ({ label: at("label").value, ...values });
const predict = (values) => request("/api/look", { ...settings(), options: options(values) });
const picture = (output, size) => make("img", { src: `data:image/png;base64,${output.png}`, alt: output.text, className: isSmall(size) ? "coarse" : "" });
// The images of an answer: the first is its output, the others are its alternatives.
const outputsOf = (answer) => [answer.output, ...answer.alternatives.map((other) => other.image)];
const gallery = (node, outputs, choose, nameOf) => node.replaceChildren(...outputs.map((output, i) => {
  const button = make("button", { type: "button", className: "sample", title: nameOf(i) }, picture(output, [1, 1]));
  button.setAttribute("aria-label", nameOf(i));
  button.onclick = () => choose(i, button);
  return button;
}));
const mark = (button) => {
  for (const other of document.querySelectorAll(".sample")) other.setAttribute("aria-pressed", String(other === button));
};
const guard = (work) => async (...values) => {
  try {
    await work(...values);
    showError();
  } catch (error) {
    showError(error);
  }
};

const generate = guard(async () => {
  const [seed, samples] = [Number(at("seed").value), Number(at("count").value)];
  at("submit").disabled = true;
  try {
    const answer = await predict({ seed, samples });
    gallery(at("gallery"), outputsOf(answer), (i, button) => choose({ seed: seed + i, to: -1 }, button), (i) => `seed ${seed + i}`);
    mark(at("gallery").firstElementChild);
    await choose({ seed, to: -1 }, at("gallery").firstElementChild);
    updateAddress({ ...settings(), inputs: "", label: at("label").value, seed, count: samples });
  } finally {
    at("submit").disabled = false;
  }
});
const interpolate = guard(async () => {
  const [seed, to] = [Number(at("from").value), Number(at("to").value)];
  const answer = await predict({ seed, to_seed: to, samples: STEPS });
  const position = (i) => i / (STEPS - 1);
  gallery(at("strip"), outputsOf(answer), (i, button) => {
    at("position").value = Math.round(100 * position(i));
    return choose({ seed, to, position: position(i) }, button);
  }, (i) => `${Math.round(100 * position(i))}% from seed ${seed} to seed ${to}`);
});

// One image with its maps.
const choose = guard(async (values, button) => {
  Object.assign(state, values);
  const number = ++latest;
  const answer = await predict({ seed: state.seed, to_seed: state.to, position: state.position, samples: 1 });
  if (number !== latest) return;
  prediction = answer;
  withImages(prediction.maps, prediction.images);
  mark(button);
  const name = state.to < 0 ? `seed ${state.seed}` : `${Math.round(100 * state.position)}% from seed ${state.seed} to seed ${state.to}`;
  const notes = prediction.notes?.length ? `, ${prediction.notes.join(", ")}` : "";
  at("chosen").textContent = `Where a cell looks: ${name}${notes}, score ${digits(prediction.scores.score)}`;
  const chosen = { seed: state.seed, to_seed: state.to, position: state.position, label: at("label").value };
  at("look").href = `/look?${query({ model: at("model").value, options: Object.entries(chosen).map(([key, value]) => `${key}=${value}`).join("\n") })}`;
  await showMaps();
});
// Every map at the clicked point: the grids may have different sizes.
const showMaps = guard(async () => {
  const number = ++latest;
  const shown = await Promise.all(prediction.maps.map(async ({ name, queries }) => {
    const { rows, columns, labels } = queries;
    const selected = Math.min(rows - 1, Math.floor(state.row * rows)) * columns + Math.min(columns - 1, Math.floor(state.column * columns));
    const range = { map: name, head: "mean", top: selected, bottom: selected + 1, left: 0, right: labels.length, down: 1, across: 1, words: 0 };
    const weights = decodeWeights(await request(`/api/look/${prediction.id}/cells?${query(range)}`));
    const largest = weights.reduce((most, weight) => Math.max(most, weight), 1e-6);
    const select = (cell) => {
      [state.row, state.column] = [(Math.floor(cell / columns) + 0.5) / rows, ((cell % columns) + 0.5) / columns];
      return showMaps();
    };
    const view = showAxis({ axis: queries, labels, values: weights, largest, selected, select, side: SIDE });
    const strongest = labels[weights.indexOf(largest)];
    return { name, cell: labels[selected], strongest, largest, node: make("figure", {}, make("h3", {}, name), view) };
  }));
  if (number !== latest) return;
  const focused = document.activeElement?.closest("#maps .picture") ? [...document.querySelectorAll("#maps .picture")].indexOf(document.activeElement) : -1;
  at("maps").replaceChildren(...shown.map((entry) => entry.node));
  document.querySelectorAll("#maps .picture")[focused]?.focus();
  at("status").textContent = shown.map(({ name, cell, strongest, largest }) => `${name}: cell ${cell} looks most at ${strongest} (${digits(largest, 3)})`).join("; ");
  document.body.dataset.shown = String(Number(document.body.dataset.shown ?? 0) + 1);
});

const slide = () => choose({ seed: Number(at("from").value), to: Number(at("to").value), position: Number(at("position").value) / 100 }, null);
const start = async () => {
  const { models, parameters } = data;
  at("empty").hidden = models.length > 0;
  for (const node of document.querySelectorAll("#form, main > section:not(#empty)")) node.hidden = !models.length;
  if (!models.length) return;
  const opened = listModels(at("model"), models, parameters.model);
  for (const name of ["label", "seed", "count"]) if (parameters[name]) at(name).value = parameters[name];
  at("heat").replaceChildren(...heatControls());
  at("form").onsubmit = (event) => {
    event.preventDefault();
    return generate().then(interpolate);
  };
  at("model").onchange = () => generate().then(interpolate);
  at("from").onchange = at("to").onchange = interpolate;
  at("position").onchange = slide;
  if (opened) {
    await generate();
    await interpolate();
  }
  document.body.dataset.ready = "1";
};
start();
