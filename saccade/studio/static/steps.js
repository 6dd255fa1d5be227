// Step by step: from the vector of a token to the output of a head, with the model's own numbers.
import { at, data, digits, listModels, make, number, query, request, showError, table, updateAddress } from "./studio.js";
import { buildInputs, isEmpty, parseOptionText, readInputs, textInputs, writeInputs } from "./form.js";
import { dot, weightedSum, softmax, times } from "./math.js";

let prediction = null;
let values = null; // of the calculation

const field = (value, onChange, name) => {
  const input = make("input", { type: "number", step: "any", value: Number(value.toPrecision(4)) });
  input.setAttribute("aria-label", name);
  input.onchange = () => onChange(Number(input.value));
  return input;
};
const vector = (numbers, onChange, name, limit = 64) => make("div", { className: "vector" },
  ...numbers.slice(0, limit).map((value, i) => (onChange ? field(value, (edited) => onChange(i, edited), `${name} ${i}`) : make("span", {}, digits(value, 3)))),
  numbers.length > limit ? make("small", {}, `\u2026 ${numbers.length} in total`) : "");
const step = (title, text, ...parts) => make("li", {}, make("h2", {}, title), make("p", { className: "soft" }, text), ...parts);

const unchanged = () => values.projected.every((value, i) => Math.abs(value - values.q[i]) < 1e-5 * (1 + Math.abs(value)));
const recompute = ({ fromX = false, fromScores = false } = {}) => {
  if (fromX) {
    values.projected = times(values.matrix, values.x).map((value, i) => value + (values.bias ? values.bias[i] : 0));
    values.q = [...values.projected];
  }
  if (!fromScores && values.dots) {
    values.dots = values.k.map((key) => dot(values.q, key));
    values.scores = values.dots.map((product) => product * values.scale);
  }
  const remaining = values.remaining ? [values.remaining] : []; // keys that are not shown, as a single key
  const weights = softmax([...values.scores, ...remaining.map((key) => key.score)], [...values.allowed, ...remaining.map(() => true)]);
  values.weights = weights.slice(0, values.scores.length);
  values.head_output = weightedSum(weights, [...values.v, ...remaining.map((key) => key.value)]);
  values.changed = true;
  draw();
};

const draw = () => {
  const direct = unchanged();
  const size = values.q.length;
  const rows = values.labels.map((label, i) => [
    make("bdi", {}, label), values.dots ? digits(values.dots[i], 3) : "", field(values.scores[i], (edited) => { values.scores[i] = edited; recompute({ fromScores: true }); }, `score of ${label}`),
    values.allowed[i] ? "" : "masked", make("b", {}, digits(values.weights[i], 4))]);
  at("steps").replaceChildren(
    step("x: the input vector of the token", `${values.x.length} numbers.${direct ? "" : " This model rotates or normalizes q and k, so edit q below instead."}`,
      vector(values.x, direct ? (i, edited) => { values.x[i] = edited; recompute({ fromX: true }); } : null, "x", 32)),
    step("W_Q x: the query projection", `The part of W_Q that belongs to this head has ${size} rows of ${values.x.length} numbers; the dot product of each row with x is one number${values.bias ? ", plus a bias" : ""}. The first row starts with ${values.matrix[0].slice(0, 4).map((value) => digits(value, 3)).join(", ")}\u2026`,
      vector(values.projected)),
    step("q: the query", direct ? "Unchanged: this model applies nothing more to it." : "After rotary position encoding and normalization, where the model has them.",
      vector(values.q, (i, edited) => { values.q[i] = edited; recompute(); }, "q")),
    step("Scores, mask and softmax", values.dots
      ? `q.k for every key, times ${number(values.scale, 4)}${Math.abs(values.scale - size ** -0.5) < 1e-6 ? ` = 1 / \u221a${size}` : ""}; masked keys are left out; the softmax of the other scores gives weights that sum to 1.`
      : "This model computes the score of q and k with a small network; the softmax of the scores gives weights that sum to 1.",
      table(["key", "q.k", "score", "mask", "weight"], rows),
      values.remaining ? make("p", { className: "soft" }, `The ${values.labels.length} keys with the largest weights; the weights of the others sum to ${digits(1 - values.weights.reduce((sum, weight) => sum + weight, 0), 4)}.`) : ""),
    step("Weighted mean of the values", "The value vector of each key times its weight, summed: the output of this head.", vector(values.head_output)),
    step("All heads concatenated, times W_O", values.changed ? "Values were edited above, so the output of the other heads is no longer shown." : `${values.concatenated.length} numbers, and after W_O the ${values.output.length} that are added to the residual stream.`,
      ...(values.changed ? [] : [vector(values.concatenated, null, "", 32), vector(values.output, null, "", 32)])),
  );
};

const compute = async () => {
  const [map, head, position] = ["map", "head", "query"].map((id) => at(id).value);
  updateAddress({ model: at("model").value, ...textInputs(prediction.inputs), map, head, query: position });
  try {
    values = await request(`/api/look/${prediction.id}/calculation?${query({ map, head, query: position })}`);
    showError();
    draw();
  } catch (error) {
    showError(error);
  }
};
const showSelectors = (selected = {}) => {
  const maps = prediction.maps.filter(({ name }) => !["alignment", "rollout"].includes(name));
  const names = maps.map((map) => map.name);
  at("selectors").hidden = !names.length;
  if (!names.length) return showError("This model has no attention to show.");
  at("map").replaceChildren(...maps.map(({ name, title }) => new Option(title, name)));
  if (names.includes(selected.map)) at("map").value = selected.map;
  showHeads(selected);
  return undefined;
};
const showHeads = (selected = {}) => {
  const map = prediction.maps.find((entry) => entry.name === at("map").value);
  at("head").replaceChildren(...Array.from({ length: map.heads }, (_, i) => new Option(i)));
  at("query").replaceChildren(...map.queries.labels.map((label, i) => new Option(`${i} ${label}`, i)));
  if (selected.head < map.heads) at("head").value = selected.head;
  at("query").value = selected.query < map.queries.labels.length ? selected.query : map.queries.labels.length - 1;
  compute();
};
const submit = async (event) => {
  event?.preventDefault();
  if (!at("inputs").fields) return;
  try {
    const options = event ? {} : parseOptionText(data.parameters.options);
    prediction = await request("/api/look", { model: at("model").value, inputs: readInputs(at("inputs")), options });
    showError();
    showSelectors(event ? {} : data.parameters);
  } catch (error) {
    showError(error);
  }
};
// Returns whether the inputs of the address could be written.
const describeModel = async () => {
  if (!at("model").value) return false;
  try {
    const form = await request(`/api/models/${encodeURIComponent(at("model").value)}/form`);
    const before = at("inputs").fields ? readInputs(at("inputs")) : data.parameters;
    buildInputs(at("inputs"), form.inputs, submit, form.examples);
    const complete = await writeInputs(at("inputs"), before);
    if (isEmpty(at("inputs")) && form.examples.length) await writeInputs(at("inputs"), form.examples[0]);
    return complete;
  } catch (error) {
    showError(error);
    return false;
  }
};
const opened = listModels(at("model"), data.models, data.parameters.model);
at("model").onchange = describeModel;
at("form").onsubmit = submit;
at("map").onchange = () => showHeads();
at("head").onchange = at("query").onchange = compute;
if (opened) describeModel().then((complete) => complete && at("inputs").fields.some((field) => data.parameters[field.name] !== undefined) && submit());
