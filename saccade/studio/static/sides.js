// The form of a comparison: model, checkpoint and inputs of A and B; what B does not choose is that of A.
import { buildInputs, convertInputs, isEmpty, readInputs, writeInputs } from "./form.js";
import { outputNodes } from "./result.js";
import { at, listModels, make, request, showError } from "./studio.js";

export const MODES = ["inputs", "checkpoints", "models"];
const SAME = { inputs: "The model of A.", checkpoints: "The model and the input of A.", models: "The input of A." };
const NAMES = { best: "best", last: "last", mean: "mean of all kept" };
const known = new Map(); // what the studio says of a model, by address

const ask = async (path) => {
  if (!known.has(path)) known.set(path, request(path));
  try {
    return await known.get(path);
  } catch (error) {
    known.delete(path);
    throw error;
  }
};

export class Sides {
  // submit(): the form is complete, and a key says so.
  constructor(models, submit) {
    Object.assign(this, { models, submit, mode: "inputs", forms: [null, null] });
    for (const radio of this.radios) radio.onchange = () => this.setMode(radio.value);
    for (const [i, side] of ["a", "b"].entries()) {
      at(`model-${side}`).onchange = () => this.describe(i);
      at(`checkpoint-${side}`).onchange = () => this.check();
    }
    at("swap").onclick = () => this.swap();
  }

  get radios() {
    return [...document.querySelectorAll("[name=mode]")];
  }

  modelOf(i) {
    return at(i && this.mode === "models" ? "model-b" : "model-a").value;
  }

  async setMode(mode) {
    this.mode = mode;
    for (const radio of this.radios) radio.checked = radio.value === mode;
    at("model-b").parentElement.hidden = mode !== "models";
    at("inputs-b").hidden = mode !== "inputs";
    at("same").textContent = SAME[mode];
    await this.describe(1);
  }

  // Read what the model of a side needs, and show it; B follows A.
  async describe(i) {
    const side = "ab"[i];
    const name = this.modelOf(i);
    showError(null, `error-${side}`);
    this.forms[i] = null;
    if (name) {
      try {
        const path = `/api/models/${encodeURIComponent(name)}`;
        const [form, checkpoints] = await Promise.all([ask(`${path}/form`), request(`${path}/checkpoints`)]);
        if (name !== this.modelOf(i)) return; // another one was chosen while this was loaded
        this.forms[i] = form;
        showError(null, `error-${side}`);
        this.showCheckpoints(side, checkpoints);
        await this.showInputs(i, form);
      } catch (error) {
        showError(error, `error-${side}`);
      }
    }
    if (i === 0 && this.mode !== "models") await this.describe(1);
    else this.check();
  }

  showCheckpoints(side, { run, steps }) {
    const select = at(`checkpoint-${side}`);
    const before = select.value;
    select.replaceChildren(...(run ? [...Object.entries(NAMES).map(([value, text]) => new Option(text, value)), ...steps.map((step) => new Option(`step ${step.toLocaleString("en")}`, step))] : []));
    if ([...select.options].some(({ value }) => value === before)) select.value = before;
    else if (run && side === "b") select.value = "last";
    select.parentElement.hidden = !run || (side === "b" && this.mode === "inputs");
    this.steps = steps;
  }

  async showInputs(i, form) {
    const place = at(`inputs-${"ab"[i]}`);
    const before = place.fields ? convertInputs(readInputs(place), place.fields, form.inputs) : {};
    buildInputs(place, form.inputs, this.submit, []);
    await writeInputs(place, before);
    const example = form.examples[Math.min(i, form.examples.length - 1)];
    if (isEmpty(place) && example) await writeInputs(place, example);
  }

  // Say what cannot be compared, beside the control.
  check() {
    const [a, b] = ["a", "b"].map((side) => at(`checkpoint-${side}`));
    let problem = null;
    if (this.mode === "checkpoints" && this.forms[0]) {
      if (b.parentElement.hidden) problem = `${this.modelOf(0)} is no run and has one set of weights; choose a run, or compare two inputs.`;
      else if (a.value === b.value) problem = "A and B are the same checkpoint; choose another one.";
    }
    showError(problem, "error-b");
    return !problem;
  }

  // What each side asks the studio for.
  requests() {
    return [0, 1].map((i) => {
      const own = readInputs(at(i && this.mode === "inputs" ? "inputs-b" : "inputs-a"));
      const inputs = i && this.mode === "models" && this.forms[0] && this.forms[1] ? convertInputs(own, this.forms[0].inputs, this.forms[1].inputs) : own;
      const from = i && this.mode === "inputs" ? "a" : "ab"[i];
      return { model: this.modelOf(i), checkpoint: at(`checkpoint-${from}`).value, inputs };
    });
  }

  // Whether both models are open and can be compared; else the page says why not.
  get complete() {
    const side = "ab"[this.forms.indexOf(null)];
    if (side && !at(`error-${side}`).textContent) showError(this.modelOf(this.forms.indexOf(null)) ? "The model is still being opened; try again in a moment." : "Choose a model.", `error-${side}`);
    return !side && this.check();
  }

  async swap() {
    const [a, b] = ["a", "b"].map((side) => [at(`model-${side}`).value, at(`checkpoint-${side}`).value, at(`inputs-${side}`).fields ? readInputs(at(`inputs-${side}`)) : {}]);
    if (this.mode === "models") {
      [at("model-a").value, at("model-b").value] = [b[0], a[0]];
      await this.describe(0);
      await this.describe(1);
    }
    if (this.mode !== "inputs") [at("checkpoint-a").value, at("checkpoint-b").value] = [b[1], a[1]];
    else await Promise.all([writeInputs(at("inputs-a"), b[2]), writeInputs(at("inputs-b"), a[2])]);
    if (this.check()) this.submit();
  }

  // What a link holds: texts by side and name.
  link() {
    const texts = (side) => Object.entries(readInputs(at(`inputs-${side}`))).filter(([, value]) => typeof value === "string" && !value.startsWith("data:"));
    const inputs = (this.mode === "inputs" ? ["a", "b"] : ["a"]).flatMap((side) => texts(side).map(([name, value]) => [`${side}.${name}`, value]));
    const [a, b] = this.requests();
    const second = { model2: this.mode === "models" ? b.model : "", checkpoint2: this.mode === "inputs" ? "" : b.checkpoint };
    return { mode: this.mode, model: a.model, checkpoint: a.checkpoint === "best" ? "" : a.checkpoint, ...second, ...Object.fromEntries(inputs) };
  }

  // Fill the form from the parameters of an address; returns whether they are a complete comparison.
  async restore(parameters) {
    let opened = listModels(at("model-a"), this.models, parameters.model);
    if (parameters.model2) opened = listModels(at("model-b"), this.models, parameters.model2) && opened;
    else {
      listModels(at("model-b"), this.models);
      if (this.models.length > 1) at("model-b").value = this.models.find((name) => name !== at("model-a").value);
    }
    this.mode = MODES.includes(parameters.mode) ? parameters.mode : "inputs";
    await this.describe(0);
    await this.setMode(this.mode);
    const given = [["a", parameters.checkpoint], ["b", parameters.checkpoint2]].filter(([, value]) => value);
    for (const [side, value] of given) {
      const select = at(`checkpoint-${side}`);
      if ([...select.options].some((option) => option.value === value)) select.value = value;
      else {
        opened = false;
        showError(`The run has no checkpoint '${value}' any more; choose one of the list.`, `error-${side}`);
      }
    }
    const inputs = ["a", "b"].map((side) => Object.fromEntries(Object.entries(parameters).filter(([name]) => name.startsWith(`${side}.`)).map(([name, value]) => [name.slice(2), value])));
    await writeInputs(at("inputs-a"), inputs[0]);
    const other = Object.keys(inputs[1]).length ? inputs[1] : inputs[0]; // an input to change
    if (at("inputs-b").fields) await writeInputs(at("inputs-b"), other);
    if (!opened) return false;
    return this.check() && Object.keys(inputs[0]).length > 0 && (this.mode !== "inputs" || Object.keys(inputs[1]).length > 0);
  }
}
// A short name of a side for its matrix: what makes it different.
export const sideName = (mode, { model, checkpoint, inputs }) => {
  if (mode === "inputs") return Object.values(inputs).map((value) => (value.startsWith?.("data:") ? "file" : value)).join(" | ");
  const weights = /^\d+$/.test(checkpoint) ? `step ${Number(checkpoint).toLocaleString("en")}` : NAMES[checkpoint] ?? "";
  return mode === "checkpoints" ? weights : [model, weights === "best" ? "" : weights].filter(Boolean).join(" \u00b7 ");
};
// Two texts as what differs between them, with a word before it: "\u2026 too tired." and "\u2026 too wide."
export const distinctNames = (texts) => {
  const [a, b] = texts.map((text) => text.split(" "));
  const shortest = Math.min(a.length, b.length);
  let [start, end] = [0, 0];
  while (start < shortest && a[start] === b[start]) start += 1;
  while (end < shortest - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  if (start === shortest && a.length === b.length) return texts;
  return [a, b].map((words) => {
    const from = Math.max(0, start - 1);
    const to = Math.min(words.length, words.length - end + 1);
    return [...(from ? ["\u2026"] : []), ...words.slice(from, to), ...(to < words.length ? ["\u2026"] : [])].join(" ");
  });
};
export const describePrediction = (name, side) => [make("span", { className: "soft" }, make("bdi", {}, name)), make("bdi", {}, ...outputNodes(side))];
