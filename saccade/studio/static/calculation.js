// One attention head for one query: its numbers, and what follows from a number that is changed.
import { dot, softmax, times, weightedSum } from "./math.js";
import { rowsOf, unpack } from "./numbers.js";

const MATRICES = ["w_q", "w_k", "w_v", "w_o", "inputs", "projected_k"];
const close = (one, other) => one.every((value, i) => Math.abs(value - other[i]) < 1e-4 * (1 + Math.abs(value)));
const plus = (vector, bias) => (bias ? vector.map((value, i) => value + bias[i]) : vector);

// answer: what the studio sent. The result has the numbers, which ones follow from others by a product alone, and the
// columns of W_O that belong to the head.
export const calculation = (answer) => {
  const values = structuredClone(answer);
  for (const name of MATRICES) values[name] = rowsOf(unpack(values[name])).map((row) => Float64Array.from(row));
  const width = values.q.length;
  const first = values.whole ? values.head * width : 0;
  values.columns = values.w_o.map((row) => row.subarray(first, first + width));
  values.direct = close(values.projected, values.q);
  values.directKeys = values.k.every((key, i) => close(key, Array.from(values.projected_k[i])));
  values.added = values.scores.map((score, i) => (values.dots ? score - values.dots[i] * values.scale : 0)); // such as a bias
  values.biased = values.dots !== null && values.added.some((value, i) => values.allowed[i] && Math.abs(value) > 1e-4 * (1 + Math.abs(values.scores[i])));
  values.original = { head_output: [...values.head_output], output: [...values.output] };
  values.changed = false;
  return values;
};
// What an edited x changes: the query and, in self-attention, the key and the value of the same token.
export const projectAgain = (values) => {
  const { x, own } = values;
  values.projected = plus(times(values.w_q, x), values.b_q);
  values.q = [...values.projected];
  if (own === null) return;
  values.inputs[own] = Float64Array.from(x);
  values.projected_k[own] = Float64Array.from(plus(times(values.w_k, x), values.b_k));
  values.k[own] = [...values.projected_k[own]];
  values.v[own] = plus(times(values.w_v, x), values.b_v);
};
// scored: the scores were edited themselves.
export const followChange = (values, { scored = false } = {}) => {
  if (!scored && values.dots) {
    values.dots = values.k.map((key) => dot(values.q, key));
    values.scores = values.dots.map((product, i) => product * values.scale + values.added[i]);
  }
  const remaining = values.remaining ? [values.remaining] : []; // keys that are not shown, as a single key
  const weights = softmax([...values.scores, ...remaining.map((key) => key.score)], [...values.allowed, ...remaining.map(() => true)]);
  values.weights = weights.slice(0, values.scores.length);
  values.head_output = weightedSum(weights, [...values.v, ...remaining.map((key) => key.value)]);
  const { original, head } = values;
  const change = values.head_output.map((value, i) => value - original.head_output[i]);
  values.heads[head] = [...values.head_output];
  values.concatenated = values.heads.flat();
  values.output = times(values.columns, change).map((value, i) => original.output[i] + value);
  values.changed = true;
};
// What is added to the residual stream, and the sum; null where a norm lies between that the page does not have.
export const residualOf = (values) => {
  const { residual, changed, output } = values;
  if (!residual) return null;
  const normalized = !close(residual.output, residual.update);
  const update = normalized ? (changed ? null : residual.update) : changed ? output : residual.update;
  const before = !residual.pre_norm && changed ? values.x : residual.x;
  const sum = update && before.map((value, i) => value + update[i]);
  const result = residual.pre_norm ? sum : changed ? null : residual.result;
  return { before, update, sum, result, normalized };
};
