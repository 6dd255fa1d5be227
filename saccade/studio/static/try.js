// The Try page: the form of a model, and the predictions of one or two models for the same inputs.
import { at, data, digits, listModels, make, number, query, request, showError, thousands, updateAddress } from "./studio.js";
import { buildInputs, convertInputs, isEmpty, optionControls, optionText, readInputs, readOptions, textInputs, writeInputs } from "./form.js";
import { clearErrors, placeError } from "./errors.js";
import { followProgress, showBusy } from "./progress.js";
import { notices, outputNodes, scoreName } from "./result.js";
import { token } from "./views/tokens.js";

const formOf = (name) => request(`/api/models/${encodeURIComponent(name)}/form`);
const describeModel = async () => {
  const { value: name } = at("model");
  if (!name) return;
  try {
    const form = await formOf(name);
    if (name !== at("model").value) return; // another one was chosen while this was loaded
    const before = at("inputs").fields ? convertInputs(readInputs(at("inputs")), at("inputs").fields, form.inputs) : {};
    at("summary").textContent = form.summary;
    buildInputs(at("inputs"), form.inputs, submit, form.examples);
    await writeInputs(at("inputs"), before);
    at("options").replaceChildren(...optionControls(form.options));
    if (isEmpty(at("inputs")) && form.examples.length) await writeInputs(at("inputs"), form.examples[0]);
    showError();
  } catch (error) {
    showError(error);
  }
};

const bar = (name, value) => token(scoreName(name), { value: value >= 0 && value <= 1 ? value : 0, number: number(value, 4) });
const card = (prediction, milliseconds) => {
  const aligned = prediction.maps.find((map) => map.name === "alignment");
  const parts = [
    make("h2", {}, prediction.model),
    make("div", { className: "output", dir: "auto" }, ...outputNodes(prediction)),
    ...notices(prediction.notes),
    make("div", { className: "strip" }, ...Object.entries(prediction.scores).slice(0, 20).map(([name, value]) => bar(name, value))),
    ...prediction.alternatives.map((alternative) => make("p", { dir: "auto" }, make("small", {}, `${digits(Object.values(alternative.scores).at(-1), 3)}  `), alternative.output)),
  ];
  if (aligned && prediction.alignment) parts.push(alignment(aligned, prediction.alignment));
  const parameters = { model: prediction.model, ...textInputs(prediction.inputs), options: optionText(at("options")) };
  parts.push(make("p", { className: "row" }, make("small", {}, `${thousands(milliseconds)} ms`), make("a", { href: `/look?${query(parameters)}` }, "Look inside")));
  return make("section", { className: "card" }, ...parts);
};
// Source words over target words; hovering over one highlights those aligned with it.
const alignment = (map, pairs) => {
  const [targets, sources] = [map.queries, map.keys ?? map.queries].map((axis) => axis.merged ?? axis.labels);
  const buttons = (labels) => labels.map((label) => token(label, { select: () => {} }));
  const [above, below] = [buttons(sources), buttons(targets)];
  const highlight = (nodes, chosen) => nodes.forEach((node, i) => node.style.setProperty("--opacity", chosen.has(i) ? 0.75 : 0));
  below.forEach((node, i) => {
    node.onpointerenter = node.onfocus = () => {
      highlight(below, new Set([i]));
      highlight(above, new Set(pairs.filter(([, target]) => target === i).map(([source]) => source)));
    };
  });
  above.forEach((node, i) => {
    node.onpointerenter = node.onfocus = () => {
      highlight(above, new Set([i]));
      highlight(below, new Set(pairs.filter(([source]) => source === i).map(([, target]) => target)));
    };
  });
  return make("div", {}, make("h3", {}, "Word alignment"), make("div", { className: "strip" }, ...above), make("div", { className: "strip" }, ...below));
};

const submit = async (event) => {
  event?.preventDefault();
  if (!at("inputs").fields) return;
  const names = [at("model").value, at("other").value].filter(Boolean);
  const inputs = readInputs(at("inputs"));
  const link = (values) => updateAddress({ model: names[0], other: names[1] ?? "", ...textInputs(values) });
  link(inputs);
  showBusy(true);
  const progress = followProgress();
  try {
    const cards = [];
    for (const model of names) {
      const form = await formOf(model);
      const shared = Object.entries(readOptions(at("options"))).filter(([name]) => form.options.some((option) => option.name === name));
      const start = performance.now();
      const converted = convertInputs(inputs, at("inputs").fields, form.inputs);
      const prediction = await request("/api/look", { model, inputs: converted, options: Object.fromEntries(shared), generate: true, ticket: progress.ticket });
      cards.push(card(prediction, performance.now() - start));
      if (model === names[0]) link(convertInputs(prediction.inputs, form.inputs, at("inputs").fields)); // files have names now
    }
    at("predictions").replaceChildren(...cards);
    clearErrors(at("form"));
  } catch (error) {
    placeError(at("form"), error);
  } finally {
    progress.end();
    showBusy(false);
  }
};

const opened = [listModels(at("model"), data.models, data.parameters.model),
  listModels(at("other"), data.models, data.parameters.other, [new Option("none", "")])].every(Boolean);
at("model").onchange = describeModel;
at("form").onsubmit = submit;
if (!data.models.length) {
  at("form").hidden = true;
  at("predictions").replaceChildren(make("div", { className: "empty" }, make("h2", {}, "No models yet"), make("p", {}, "Train a model, or download one:"), make("pre", {}, "saccade models get minilm")));
}
const start = async () => {
  if (!opened) return;
  await describeModel();
  const given = (at("inputs").fields ?? []).some((field) => data.parameters[field.name] !== undefined);
  const complete = await writeInputs(at("inputs"), data.parameters);
  document.body.dataset.ready = "1";
  if (given && complete) await submit();
};
start();
