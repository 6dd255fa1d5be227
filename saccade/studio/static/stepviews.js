// The steps of one head for one query as a list; a number that is edited changes all that follows from it.
import { digits, make, number } from "./studio.js";
import { followChange, projectAgain, residualOf } from "./calculation.js";
import { numberGrid, vectorBars } from "./numbers.js";

const step = (title, text, ...parts) => make("li", {}, make("h2", {}, title), make("p", { className: "soft" }, text), ...parts);
const side = (...parts) => make("div", { className: "pair-of" }, ...parts);

// changed(): called when a number was edited.
export const showSteps = (list, values, changed) => {
  const figures = [];
  const rows = []; // update() of each key in the table
  const update = () => {
    for (const shown of [...figures, ...rows]) shown.update();
  };
  const follow = (how) => {
    followChange(values, how);
    changed();
    update();
  };
  const keep = (figure) => {
    figures.push(figure);
    return figure;
  };
  const grid = (name, get, options) => keep(numberGrid(name, get, options));
  const bars = (name, get, edit) => keep(vectorBars(name, get, edit));
  const named = { labels: values.labels };
  list.replaceChildren(
    inputStep(values, bars, follow),
    queryStep(values, grid, bars, follow),
    keysStep(values, grid, named, follow),
    scoresStep(values, rows, follow),
    sumStep(values, grid, bars, named),
    headsStep(values, grid, bars),
    residualStep(values, bars, keep),
  );
  update(); // the widths are known now
};

const inputStep = (values, bars, follow) => {
  const { residual, x } = values;
  const normed = residual?.pre_norm && residual.x.some((value, i) => Math.abs(value - x[i]) > 1e-6 * (1 + Math.abs(value)));
  const edit = values.direct && values.dots ? (i, value) => {
    values.x[i] = value;
    projectAgain(values);
    follow();
  } : null;
  const text = normed ? "The residual stream of the token, and the same after the norm: what this layer reads (pre-norm)."
    : residual && !residual.pre_norm ? "The residual stream of the token, which this layer reads as it is (post-norm)."
      : "What this layer reads of the token.";
  const rule = values.dots === null ? "" : edit ? ` An edited x changes q${values.own === null ? "" : ", and k and v of the same token"}.` : " This model rotates or normalizes q and k: edit q below instead.";
  return step("x: the input vector of the token", text + rule, side(...(normed ? [bars("Residual stream", () => residual.x)] : []), bars("x", () => values.x, edit)));
};
const queryStep = (values, grid, bars, follow) => {
  const edit = values.dots && ((i, value) => {
    values.q[i] = value;
    follow();
  });
  const width = values.q.length;
  return step("q = W_Q x: the query", `The part of W_Q that belongs to this head has ${width} rows of ${values.x.length} numbers: the dot product of each row with x is one number of q${values.b_q ? ", plus a bias" : ""}.${values.direct ? "" : " Then this model applies a norm, a factor or the rotary position encoding."}`,
    grid("W_Q of this head", () => values.w_q),
    side(...(values.direct ? [] : [bars("W_Q x", () => values.projected)]), bars("q", () => values.q, edit)));
};
const keysStep = (values, grid, named, follow) => {
  const setter = (name) => (row, column, value) => {
    values[name][row][column] = value;
    follow();
  };
  const count = values.labels.length;
  const shared = values.w_k.every((row, i) => row.every((value, j) => value === values.w_q[i]?.[j]));
  return step("K and V: the keys and the values", `Each of the ${count} tokens ${values.remaining ? "with the largest weights " : ""}has a key k = W_K x and a value v = W_V x${values.b_k ? ", plus biases" : ""}.${values.directKeys ? "" : " The keys are then rotated or normalized like the query."}${shared ? " In this model W_Q, W_K and W_V are one matrix." : ""}`,
    grid("Inputs of the keys", () => values.inputs, named),
    side(grid("W_K of this head", () => values.w_k), grid("W_V of this head", () => values.w_v)),
    side(...(values.directKeys ? [] : [grid("W_K x", () => values.projected_k, named)]),
      grid("Keys K", () => values.k, { ...named, edit: values.dots ? setter("k") : null }),
      grid("Values V", () => values.v, { ...named, edit: setter("v") })));
};
const scoreField = (value, change, name) => {
  const input = make("input", { type: "number", step: "any", value: Number(value.toPrecision(4)) });
  input.setAttribute("aria-label", name);
  input.onchange = () => input.value !== "" && change(Number(input.value));
  return input;
};
const scoreRow = (values, i, rows, follow) => {
  const label = values.labels[i];
  const product = make("td", { className: "number" });
  const bias = make("td", { className: "number" });
  const weight = make("b", {});
  const bar = make("i", { className: "weight-bar" });
  const score = scoreField(values.scores[i], (value) => {
    values.scores[i] = value;
    follow({ scored: true });
  }, `score of ${label}`);
  const open = make("input", { type: "checkbox", checked: values.allowed[i] });
  open.setAttribute("aria-label", `${label} is visible`);
  open.onchange = () => {
    values.allowed[i] = open.checked;
    follow({ scored: true });
  };
  rows.push({
    update: () => {
      product.textContent = values.dots ? digits(values.dots[i], 3) : "";
      bias.textContent = values.biased ? digits(values.added[i], 3) : "";
      if (document.activeElement !== score) score.value = Number(values.scores[i].toPrecision(4));
      weight.textContent = digits(values.weights[i], 4);
      bar.style.width = `${100 * values.weights[i]}%`;
    },
  });
  return make("tr", {}, make("td", {}, make("bdi", {}, label)), ...(values.dots ? [product] : []), ...(values.biased ? [bias] : []),
    make("td", { className: "number" }, score), make("td", { className: "number" }, open), make("td", { className: "number" }, weight), make("td", { className: "bar-cell" }, bar));
};
const scoresStep = (values, rows, follow) => {
  const size = values.q.length;
  const factor = Math.abs(values.scale - size ** -0.5) < 1e-6 ? ` = 1 / \u221a${size}` : "";
  const text = values.dots
    ? "The dot product of q with every key, times the scale, is its score; masked keys are left out; the softmax of the other scores gives weights that sum to 1."
    : "This model computes the score of q and k with a small network; the softmax of the scores that are not masked gives weights that sum to 1.";
  const scale = scoreField(values.scale, (value) => {
    values.scale = value;
    follow();
  }, "scale");
  const head = ["key", ...(values.dots ? ["q\u00b7k"] : []), ...(values.biased ? ["bias"] : []), "score", "visible", "weight", ""];
  const rest = make("p", { className: "soft" });
  if (values.remaining) {
    rows.push({ update: () => {
      const others = 1 - values.weights.reduce((sum, weight) => sum + weight, 0);
      rest.textContent = `The ${values.labels.length} keys with the largest weights; the weights of the others sum to ${digits(others, 4)}.`;
    } });
  }
  return step("Scores, scaling, mask and softmax", text,
    ...(values.dots ? [make("p", {}, make("label", {}, "Scale ", scale), make("span", { className: "soft" }, factor))] : []),
    make("div", { className: "scroll" }, make("table", { className: "scores-of" },
      make("thead", {}, make("tr", {}, ...head.map((name, i) => (name ? make("th", { scope: "col", className: i ? "number" : "" }, name) : make("td", {}))))),
      make("tbody", {}, ...values.labels.map((_, i) => scoreRow(values, i, rows, follow))))), rest);
};
const sumStep = (values, grid, bars, named) => step("Weighted sum of the values", "Each value times its weight; their sum is the output of this head.",
  grid("Values times weights", () => values.v.map((value, i) => value.map((part) => part * values.weights[i])), named),
  bars("Output of this head", () => values.head_output));

const headsStep = (values, grid, bars) => {
  const count = values.heads.length;
  const [first, last] = [values.head / count, (values.head + 1) / count];
  return step("Concatenation and W_O", `The outputs of all ${count} heads side by side are ${values.concatenated.length} numbers; W_O${values.b_o ? " and a bias" : ""} turns them into ${values.output.length}. ${values.whole ? "The columns of this head are framed." : "W_O is large: only the columns of this head are shown."}`,
    grid("Outputs of the heads", () => values.heads, { labels: values.heads.map((_, i) => `head ${i}`), mark: { top: first, bottom: last } }),
    grid(values.whole ? "W_O" : "W_O, columns of this head", () => values.w_o, values.whole && count > 1 ? { mark: { left: first, right: last } } : {}),
    side(bars("Concatenated", () => values.concatenated), bars("Output of the layer", () => values.output)));
};
const residualStep = (values, bars, keep) => {
  const first = residualOf(values);
  if (!first) return step("No residual connection", `There is no residual connection around this attention: its output of norm ${number(Math.hypot(...values.output), 4)} goes on as it is.`);
  const zeros = values.output.map(() => 0);
  const now = () => residualOf(values);
  const note = keep(make("p", { className: "soft" }));
  note.update = () => {
    const { update, result } = now();
    note.textContent = update && result ? "" : "A norm comes after the edited numbers: what follows it is not recomputed here.";
  };
  const shown = side(bars("Residual stream before", () => now().before), bars(first.normalized ? "Added, normalized" : "Added", () => now().update ?? zeros),
    bars("Sum", () => now().sum ?? zeros), ...(values.residual.pre_norm ? [] : [bars("After the norm", () => now().result ?? zeros)]));
  return step("Residual connection", values.residual.pre_norm ? "The output is added to the residual stream, which the next sub-layer reads." : "The output is added to the residual stream, and the sum is normalized (post-norm).", shown, note);
};
