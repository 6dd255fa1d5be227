// The Generate page: a prompt is continued token by token; continuations branch at any token.
import { at, data, listModels, make, request, showError, updateAddress } from "./studio.js";
import { card } from "./branches.js";
import { buildInputs, isEmpty, optionControls, optionText, parseOptionText, readInputs, readOptions, textInputs, writeInputs, writeOptions } from "./form.js";
import { decodeRow, steer, streamLines } from "./generation.js";
import { SAMPLED, samplingControls, steering } from "./sampling.js";
import { watching } from "./watching.js";

const LENGTH = "max_new_tokens";
const OWN = ["seed", LENGTH, ...SAMPLED]; // options with a control of their own
const MOST = 8; // continuations on the page
const TRIED = 4; // models, to find one that generates
const KEYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const parameters = data.parameters;

let form = null; // of the model that is chosen
let settings = () => ({});
let entries = []; // the continuations
let named = 0; // how many have had a name
const state = { entry: null, step: 0, follow: true };
const has = (name) => Boolean(form?.options.some((option) => option.name === name));
const running = () => entries.filter((entry) => entry.running);

const updateLink = () => {
  const { map, head } = watch.view;
  const numbers = { count: at("count").value, seed: at("seed").value, length: at("length").value };
  updateAddress({ model: at("model").value, ...textInputs(readInputs(at("inputs"))), ...numbers, ...settings(), map, head: head < 0 ? "" : head, sink: at("sink").checked ? "1" : "", options: optionText(at("options")) });
};

// The form.
const tuneTo = steering(async (values) => {
  await Promise.all(running().filter((entry) => entry.id).map((entry) => steer(entry.id, { options: values })));
  await watch.showStep();
}, (error) => showError(error, "sampling-message"));
const describeModel = async () => {
  const { value: name } = at("model");
  if (!name) return false;
  try {
    const answer = await request(`/api/models/${encodeURIComponent(name)}/form`);
    if (name !== at("model").value) return false; // another one was chosen while this was loaded
    at("submit").disabled = !answer.generates;
    if (!answer.generates) {
      showError(`${name} does not generate token by token: choose a language model, or one that writes text.`);
      return false;
    }
    const before = form ? readInputs(at("inputs")) : {};
    form = answer;
    buildInputs(at("inputs"), form.inputs, start, form.examples);
    await writeInputs(at("inputs"), before);
    if (isEmpty(at("inputs")) && form.examples.length) await writeInputs(at("inputs"), form.examples[0]);
    at("options").replaceChildren(...optionControls(form.options.filter((option) => !OWN.includes(option.name))));
    if (has("beam")) writeOptions(at("options"), { beam: 1 }); // a beam search has no next token to choose from
    writeOptions(at("options"), parseOptionText(parameters.options));
    settings = samplingControls(at("sampling"), form.options, parameters, (values) => {
      updateLink();
      tuneTo(values);
    });
    for (const [id, name_] of [["seed-field", "seed"], ["count-field", "seed"], ["length-field", LENGTH]]) at(id).hidden = !has(name_);
    showError();
    return true;
  } catch (error) {
    showError(error);
    return false;
  }
};

// Continuations.
const render = () => {
  at("empty").hidden = entries.length > 0;
  at("results").hidden = !entries.length;
  at("stop").hidden = !running().length;
  at("submit").textContent = entries.length ? "Generate again" : "Generate";
  for (const entry of entries) entry.card.update(entry === state.entry, state.step);
};
let drawing = false;
const renderSoon = () => {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    render();
    watch.showMatrix();
    watch.showStep();
  });
};
const pick = (entry, step) => {
  const other = entry !== state.entry;
  state.entry = entry;
  state.follow = step < 0;
  state.step = step < 0 ? Math.max(0, entry.steps.length - 1) : step;
  if (other && entry.maps.length) watch.describe(entry);
  renderSoon();
  if (entry.id) watch.fill(entry);
};
const receive = (entry, event) => {
  if ("step" in event) {
    const { row, map, head, ...step } = event;
    entry.steps.push(step);
    if (row && map === watch.view.map && head === watch.view.head) entry.rows[entry.first + step.step] = decodeRow(row);
    if (entry === state.entry && state.follow) state.step = entry.steps.length - 1;
  } else if ("prompt" in event) {
    Object.assign(entry, { prompt: event.prompt, self: event.self, first: event.first, maps: event.maps });
    const before = watch.view.map;
    if (entry === state.entry || !before) watch.describe(entry);
    if (watch.view.map !== before) steer(entry.id, watch.view).then(() => watch.fill(entry), showError);
    else if (entry === state.entry) watch.fill(entry);
  } else if ("end" in event) entry.end = event.end;
  else if ("id" in event) entry.id = event.id;
  else if ("text" in event) entry.rest += event.text;
  renderSoon();
};
const run = async (entry, branch) => {
  const body = { model: entry.model, inputs: entry.inputs, options: entry.options, map: watch.view.map, head: watch.view.head, ...branch };
  try {
    await streamLines(body, (event) => receive(entry, event), entry.controller.signal);
    entry.end ??= "stopped";
    showError();
  } catch (error) {
    entry.error = error.message;
    if (!entry.steps.length) remove(entry);
    showError(error);
  } finally {
    entry.running = false;
    render();
    watch.showStep();
    if (entry === state.entry) await watch.fill(entry);
    document.body.dataset.generated = String(entries.filter((other) => !other.running).length);
  }
};
// What of a finished continuation can be opened in Look; null: nothing.
const lookAt = (entry) => {
  const text = entry.steps.map((step) => (step.end ? "" : step.text)).join("") + entry.rest;
  const [first] = entry.fields;
  if (entry.continues) return { model: entry.model, ...textInputs(entry.inputs), [first]: entry.inputs[first] + text };
  if (entry.canTarget) return text.trim() ? { model: entry.model, ...textInputs(entry.inputs), options: `target=${text.trim()}` } : null;
  if (entry.givenCount || entry.steps.some((step) => step.given || SAMPLED.some((name) => step.settings[name] !== entry.steps[0].settings[name]))) return null;
  const written = entry.steps.filter((step) => !step.end).length;
  return { model: entry.model, ...textInputs(entry.inputs), options: Object.entries({ ...entry.options, [LENGTH]: written }).map((pair) => pair.join("=")).join("\n") };
};
// Begin a continuation of the prompt, or of some tokens of another one; `place`: the one that it replaces.
const begin = ({ inputs, seed, key = KEYS[named++ % KEYS.length], from = "", keep = 0, branch = {}, place = -1, select = true }) => {
  const fixed = { ...(has("seed") ? { seed } : {}), ...(has(LENGTH) ? { [LENGTH]: keep + Math.max(1, Number(at("length").value) || 1) } : {}) };
  const [first] = form.inputs.map(({ name }) => name);
  const entry = {
    key, from, seed: has("seed") ? seed : undefined, model: at("model").value, inputs, options: { ...readOptions(at("options")), ...settings(), ...fixed },
    fields: form.inputs.map(({ name }) => name), continues: form.continues, canTarget: has("target"), canProceed: has(LENGTH), givenCount: keep,
    text: form.continues ? String(inputs[first] ?? "") : "", steps: [], rows: [], prompt: [], maps: [], first: 0, rest: "", running: true, controller: new AbortController(),
  };
  entry.look = () => lookAt(entry);
  entry.card = card(entry, { pick, proceed, remove });
  if (place < 0) {
    entries.push(entry);
    at("continuations").append(entry.card.node);
  } else {
    entries[place].card.node.replaceWith(entry.card.node);
    entries[place] = entry;
  }
  if (select) Object.assign(state, { entry, step: 0, follow: true });
  render();
  run(entry, branch);
};
const free = () => {
  if (entries.length < MOST) return true;
  showError(`There are ${MOST} continuations, the most that are kept: remove one first.`, "step-message");
  return false;
};
const sameModel = (entry) => {
  if (entry.model === at("model").value) return true;
  showError(`This continuation is of ${entry.model}: choose that model to go on with it.`, "step-message");
  return false;
};
const take = (entry, step, id, label) => {
  if (!free() || !sameModel(entry)) return;
  begin({ inputs: entry.inputs, seed: entry.seed, from: `${entry.key}, token ${step + 1}: ${label}`, keep: step + 1, branch: { parent: entry.id, keep: step, token: id } });
  state.entry.card.node.focus({ preventScroll: true }); // the bar that was chosen is gone
};
const resample = () => {
  const { entry, step } = state;
  if (!entry || !free() || !sameModel(entry)) return;
  const seed = Math.max(...entries.map((other) => other.seed)) + 1;
  begin({ inputs: entry.inputs, seed, from: `${entry.key}, token ${step + 1}`, keep: step, branch: { parent: entry.id, keep: step } });
};
const proceed = (entry) => sameModel(entry)
  && begin({ inputs: entry.inputs, seed: entry.seed, key: entry.key, from: entry.from, keep: entry.steps.length, branch: { parent: entry.id, keep: entry.steps.length }, place: entries.indexOf(entry) });
const remove = (entry) => {
  halt(entry);
  entry.card.node.remove();
  entries = entries.filter((other) => other !== entry);
  if (state.entry === entry) entries.length ? pick(entries[0], -1) : Object.assign(state, { entry: null });
  render();
};
const halt = (entry) => {
  if (!entry.running) return undefined;
  if (!entry.id) return entry.controller.abort();
  return steer(entry.id, { stop: true }).catch((error) => {
    entry.controller.abort();
    showError(error);
  });
};
const start = (event) => {
  event?.preventDefault();
  if (!form || at("submit").disabled) return;
  for (const entry of [...entries]) remove(entry);
  named = 0;
  delete document.body.dataset.generated;
  const [seed, count] = [Number(at("seed").value), has("seed") ? Math.min(6, Math.max(1, Number(at("count").value) || 1)) : 1];
  const inputs = readInputs(at("inputs"));
  updateLink();
  for (let i = 0; i < count; i++) begin({ inputs, seed: seed + i, select: i === 0 });
};

const watch = watching({ state, settings: () => settings(), actions: { pick, take }, all: () => entries, changed: () => updateLink() });
at("form").onsubmit = start;
at("stop").onclick = () => running().forEach(halt);
at("resample").onclick = resample;
at("previous").onclick = () => pick(state.entry, state.step - 1);
at("next").onclick = () => pick(state.entry, state.step + 1);
at("newest").onclick = () => state.entry && pick(state.entry, -1);
at("model").onchange = describeModel;
const open = async () => {
  if (!data.models.length) {
    at("form").hidden = true;
    at("empty").replaceChildren(make("h2", {}, "No models yet"), make("p", {}, "Train one on any text, or download one:"), make("pre", {}, "saccade models get smollm2"));
    return;
  }
  if (!listModels(at("model"), data.models, parameters.model)) return;
  for (const id of ["count", "seed", "length"]) if (parameters[id]) at(id).value = parameters[id];
  Object.assign(watch.view, { map: parameters.map ?? "", head: parameters.head ? Number(parameters.head) : -1 });
  at("sink").checked = parameters.sink === "1";
  let found = await describeModel();
  if (!parameters.model) for (const name of data.models.slice(1, TRIED)) if (!found) {
    at("model").value = name;
    found = await describeModel();
  }
  if (!found) return;
  const complete = await writeInputs(at("inputs"), parameters);
  document.body.dataset.ready = "1";
  if (parameters.run && complete) start();
};
open();
