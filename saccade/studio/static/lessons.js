// The Lessons page: small calculations to edit.
import { at, data, digits, drawPixels, make, table } from "./studio.js";
import { chart } from "./chart.js";
import { tourCards } from "./tour.js";
import { dot, entropy, weightedSum, random, softmax, times } from "./math.js";

const field = (value, onInput, name) => {
  const input = make("input", { type: "number", step: "any", value });
  input.setAttribute("aria-label", name);
  input.oninput = () => onInput(Number(input.value));
  return input;
};
const row = (name, ...parts) => make("p", { className: "row" }, make("b", {}, name), ...parts);
const contentOf = (id) => {
  const container = make("div", {});
  at(id).append(container);
  return container;
};
const text = (content) => make("p", { className: "soft" }, content);

// Scores 112 and 96, divided by the square root of 64, give weights 0.88 and 0.12.
const EXAMPLES = { "112, 96": { raw: [112, 96], width: 64, values: [1, 0] }, "1, 1, 1, 5": { raw: [1, 1, 1, 5], width: 1, values: [10, 20, 30, 40] } };
const scores = () => {
  const [container, fields, result] = [contentOf("scores"), make("div", {}), make("div", {})];
  let state = null;
  const draw = () => {
    const scaled = state.raw.map((score) => score / Math.sqrt(state.width));
    const weights = softmax(scaled);
    const shown = (values, count) => values.map((value) => make("code", {}, digits(value, count)));
    result.replaceChildren(
      row("divided by \u221ad", ...shown(scaled)), row("softmax", ...shown(weights, 4)), row("weighted sum", ...shown([dot(weights, state.values)], 4)),
      row("mean without weights", ...shown([state.values.reduce((sum, value) => sum + value, 0) / state.values.length], 4)),
      text("Softmax depends only on differences of scores. If all scores are equal, the result is the plain mean: mean pooling is attention with uniform weights."));
  };
  const start = (example) => {
    state = structuredClone(example);
    const change = (name, list) => state[list].map((value, i) => field(value, (edited) => { state[list][i] = edited; draw(); }, `${name} ${i + 1}`));
    fields.replaceChildren(row("q.k", ...change("score", "raw")), row("dimension d of a key", field(state.width, (edited) => { state.width = edited; draw(); }, "dimension d of a key")), row("values", ...change("value", "values")));
    draw();
  };
  const buttons = Object.entries(EXAMPLES).map(([name, example]) => {
    const button = make("button", { type: "button" }, name);
    button.onclick = () => start(example);
    return button;
  });
  container.append(make("div", { className: "row" }, ...buttons), fields, result);
  start(EXAMPLES["112, 96"]);
};

// Random queries and keys: without scaling, the softmax soon puts all weight on one key.
const scaling = () => {
  const { normal } = random(7);
  const widths = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
  const entropies = (scale) => widths.map((width, i) => {
    let total = 0;
    for (let trial = 0; trial < 20; trial++) {
      const q = Array.from({ length: width }, normal);
      const products = Array.from({ length: 16 }, () => dot(q, Array.from({ length: width }, normal)) * scale(width));
      total += entropy(softmax(products)) / Math.log(16) / 20;
    }
    return [i, total];
  });
  contentOf("scaling").append(
    chart([{ name: "q.k / \u221ad", points: entropies((width) => width ** -0.5) }, { name: "q.k", points: entropies(() => 1) }], { title: "normalized entropy of the weights over 16 random keys (1: uniform)", x: "log2 d" }),
    text("The dot product of two random vectors of dimension d has variance d. Divided by \u221ad the variance stays 1; otherwise the softmax saturates and its gradient vanishes."));
};

const WORDS = ["the", "dog", "bit", "the", "man"];
const { normal } = random(3);
const embeddings = Object.fromEntries([...new Set(WORDS)].map((word) => [word, Array.from({ length: 4 }, normal)]));
const sinusoid = (position, width) => Array.from({ length: width }, (_, i) => Math[i % 2 ? "cos" : "sin"](position / 10000 ** ((i - (i % 2)) / width)));
const attend = (vectors, allowed = () => true) => vectors.map((q, i) => {
  const weights = softmax(vectors.map((k) => dot(q, k) / 2), vectors.map((_, j) => allowed(i, j)));
  return { weights, output: weightedSum(weights, vectors) };
});

// Shuffled words get the same outputs, until positional encodings are added.
const order = () => {
  const container = contentOf("order");
  let [words, positioned] = [[0, 1, 2, 3, 4], false]; // indices of WORDS in their current order
  const draw = () => {
    const vectors = words.map((i, position) => embeddings[WORDS[i]].map((value, c) => value + (positioned ? sinusoid(position, 4)[c] : 0)));
    const outputs = attend(vectors);
    const rows = words.map((i, position) => make("tr", {}, make("td", {}, WORDS[i]), ...outputs[position].output.map((value) => make("td", { className: "number" }, digits(value)))));
    const shuffle = make("button", { type: "button" }, "Shuffle");
    shuffle.onclick = () => {
      words = words.map((i) => [Math.random(), i]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1]);
      draw();
    };
    const box = make("input", { type: "checkbox", checked: positioned });
    box.onchange = () => {
      positioned = box.checked;
      draw();
    };
    container.replaceChildren(make("div", { className: "row" }, shuffle, make("label", {}, box, " add positional encodings")),
      make("table", {}, make("tbody", {}, ...rows)),
      text(positioned ? "With positional encodings the output of each word depends on its position." : "In any order each word gets the same output: \u201cthe dog bit the man\u201d equals \u201cthe man bit the dog\u201d."));
  };
  draw();
};

// One word is replaced: the outputs that change are those that attend to it.
const MASKS = { "No mask": () => true, "Causal mask": (i, j) => j <= i, "Each word attends to itself only": (i, j) => i === j };
const masking = () => {
  const [container, tables] = [contentOf("masking"), make("div", {})];
  const choice = make("select", {}, ...WORDS.map((word, i) => new Option(`${i + 1}. ${word}`, i)));
  choice.value = WORDS.length - 1;
  const addPositions = (words) => words.map((vector, i) => vector.map((value, c) => value + sinusoid(i, 4)[c]));
  const draw = () => {
    const before = WORDS.map((word) => embeddings[word]);
    const after = before.map((vector, i) => (i === Number(choice.value) ? vector.map((value) => -value) : vector));
    tables.replaceChildren(...Object.entries(MASKS).flatMap(([name, allowed]) => {
      const [original, replaced] = [before, after].map((words) => attend(addPositions(words), allowed));
      const change = original.map(({ output }, i) => Math.max(...output.map((value, c) => Math.abs(value - replaced[i].output[c]))));
      const rows = original.map(({ weights }, i) => [WORDS[i], ...weights.map((weight) => (weight ? digits(weight) : "0")), change[i] ? digits(change[i], 3) : "0"]);
      return [make("h3", {}, name), table(["", ...WORDS, "change"], rows)];
    }));
  };
  choice.onchange = draw;
  container.append(make("label", {}, "Replace the word ", choice), tables,
    text("Masked scores are set to minus infinity before the softmax: their weights are exactly 0 and the others still sum to 1. With a causal mask nothing before the replaced word changes. Without attention between words only the replaced word changes: normalization and MLP act on each position separately."));
  draw();
};

// 20 positions, 512 dimensions.
const positions = () => {
  const canvas = make("canvas", {});
  const interleaved = make("input", { type: "checkbox" });
  const halves = (row) => [...row.filter((_, i) => i % 2 === 0), ...row.filter((_, i) => i % 2)];
  const draw = () => {
    const rows = Array.from({ length: 20 }, (_, position) => sinusoid(position, 512)).map((row) => (interleaved.checked ? row : halves(row)));
    drawPixels(canvas, rows.flat().map((value) => (value + 1) / 2), 512);
  };
  interleaved.onchange = draw;
  Object.assign(canvas.style, { width: "100%", height: "12rem", imageRendering: "pixelated" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "20 rows of 512 sines and cosines");
  contentOf("positions").append(canvas, make("label", {}, interleaved, " interleave sines and cosines, as published"),
    text("Rows are positions 0 to 19, columns the 512 dimensions: 256 sines, then 256 cosines, from high to low frequency."));
  addEventListener("theme", draw);
  draw();
};

// The position as a concatenated one-hot vector, or as an added vector.
const append = () => {
  const [container, result] = [contentOf("append"), make("div", {})];
  const { normal: draw } = random(9);
  const [x, word, learned] = [[0.5, -1, 2], ...[3, 4].map((width) => [0, 1].map(() => Array.from({ length: width }, () => Number(draw().toFixed(2)))))];
  const choice = make("select", {}, ...[0, 1, 2, 3].map((i) => new Option(i, i)));
  const fixed = make("input", { type: "checkbox" });
  const show = () => {
    const position = Number(choice.value);
    const encoding = fixed.checked ? [0, 1].map((c) => [0, 1, 2, 3].map((i) => sinusoid(i, 2)[c])) : learned;
    const oneHot = [0, 1, 2, 3].map((i) => Number(i === position));
    const [concatenated, a, e] = [times(word.map((line, r) => [...line, ...encoding[r]]), [...x, ...oneHot]), times(word, x), times(encoding, oneHot)];
    const shown = (vector) => vector.map((value) => make("code", {}, digits(value, 3)));
    result.replaceChildren(
      row("word vector x", ...shown(x)), row("position p, one-hot", ...oneHot.map((value) => make("code", {}, value))), row("W [x; p]", ...shown(concatenated)),
      row("a = W_I x", ...shown(a)), row("e = W_P p, a column of W_P", ...shown(e)), row("a + e", ...shown(a.map((value, i) => value + e[i]))),
      row("difference", make("code", {}, Math.max(...concatenated.map((value, i) => Math.abs(value - (a[i] + e[i])))))));
  };
  choice.onchange = fixed.onchange = show;
  container.append(make("div", { className: "row" }, make("label", {}, "Position ", choice), make("label", {}, fixed, " sines and cosines instead of a learned table")), result,
    text("Concatenating a one-hot position before a linear layer equals adding a position vector after it. W_P may be learned or fixed."));
  show();
};

// Regression as a weighted mean of nearby values: by a kernel, by a Gaussian process, by attention with a learned width.
const smoothing = () => {
  const { next, normal: noise } = random(11);
  const points = Array.from({ length: 24 }, () => 5 * next()).sort((a, b) => a - b).map((x) => [x, 2 * Math.sin(x) + x ** 0.8 + 0.4 * noise()]);
  const grid = Array.from({ length: 80 }, (_, i) => (i * 5) / 79);
  const kernel = (a, b, width) => Math.exp(-((a - b) ** 2) / (2 * width * width));
  const heights = points.map(([, y]) => y);
  const nearby = (x, width, skip = -1) => softmax(points.map(([px], i) => (i === skip ? -Infinity : -((x - px) ** 2) / (2 * width * width))));
  const solve = (matrix, vector) => {
    const rows = matrix.map((line, i) => [...line, vector[i]]);
    rows.forEach((pivot, i) => {
      for (let r = i + 1; r < rows.length; r++) {
        const factor = rows[r][i] / pivot[i];
        for (let c = i; c <= rows.length; c++) rows[r][c] -= factor * pivot[c];
      }
    });
    const solution = Array(rows.length).fill(0);
    for (let i = rows.length - 1; i >= 0; i--) solution[i] = (rows[i][rows.length] - dot(rows[i].slice(i + 1, rows.length), solution.slice(i + 1))) / rows[i][i];
    return solution;
  };
  const noisy = (width) => points.map(([a], i) => points.map(([b], j) => kernel(a, b, width) + (i === j ? 0.16 : 0)));
  const gaussian = (x, width) => solve(noisy(width), points.map(([px]) => kernel(x, px, width)));
  const learned = () => { // the width with the lowest leave-one-out error
    const loss = (width) => points.reduce((sum, [x, y], i) => sum + (dot(nearby(x, width, i), heights) - y) ** 2, 0);
    return Array.from({ length: 60 }, (_, i) => 0.05 * 1.07 ** i).reduce((best, width) => (loss(width) < loss(best) ? width : best));
  };
  const container = contentOf("smoothing");
  const width = make("input", { type: "range", min: 0.05, max: 2, step: 0.05, value: 1 });
  width.setAttribute("aria-label", "kernel width");
  const picture = make("div", {});
  const best = learned();
  const draw = () => {
    const kernelWidth = Number(width.value);
    const methods = {
      "kernel smoothing": (x) => nearby(x, kernelWidth),
      "Gaussian process": (x) => gaussian(x, kernelWidth),
      [`attention, learned width ${digits(best)}`]: (x) => nearby(x, best),
    };
    const weights = Object.entries(methods).map(([name, weigh]) => [name, grid.map(weigh)]);
    const curves = weights.map(([name, rows]) => ({ name, points: rows.map((row, i) => [grid[i], dot(row, heights)]) }));
    picture.replaceChildren(
      chart([...curves, { name: "truth", points: grid.map((x) => [x, 2 * Math.sin(x) + x ** 0.8]), muted: true }, { name: "data", points, scatter: true }], { title: `24 noisy points, kernel width ${width.value}`, x: "x" }),
      make("div", { className: "row" }, ...weights.map(([name, rows]) => map(name, rows))));
  };
  const map = (name, rows) => {
    const canvas = make("canvas", {});
    const largest = Math.max(...rows.flat());
    drawPixels(canvas, rows.flat().map((weight) => weight / largest), points.length);
    Object.assign(canvas.style, { width: "100%", height: "7rem", imageRendering: "pixelated" });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `weights of the 24 points (columns) for each x (rows): ${name}`);
    const container = make("figure", {}, canvas, make("figcaption", { className: "soft" }, name));
    container.style.flex = "1 1 9rem";
    return container;
  };
  width.oninput = draw;
  addEventListener("theme", draw);
  container.append(make("label", {}, "Kernel width ", width), picture,
    text("Kernel smoothing is attention with fixed queries and keys: a softmax over negative squared distances. A learned width makes it sharper; a Gaussian process also accounts for correlated neighbours. The three maps: weight of each of the 24 points (columns) at each x (rows, 0 at the top to 5)."));
  draw();
};

// The gradient norm of each layer's weights at initialization.
const norms = () => {
  const [depth, width] = [24, 32];
  const { normal: draw } = random(5);
  const matrices = Array.from({ length: depth }, () => Array.from({ length: width }, () => Array.from({ length: width }, () => draw() / Math.sqrt(width))));
  const multiply = (matrix, vector) => matrix.map((line) => dot(line, vector));
  const back = (matrix, vector) => vector.map((_, c) => matrix.reduce((sum, line, r) => sum + line[c] * vector[r], 0));
  const norm = (x) => {
    const mean = x.reduce((sum, value) => sum + value, 0) / width;
    const deviation = Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width) + 1e-9;
    return { y: x.map((value) => (value - mean) / deviation), deviation };
  };
  const normBack = ({ y, deviation }, g) => {
    const [mean, along] = [g.reduce((sum, value) => sum + value, 0) / width, dot(g, y) / width];
    return g.map((value, i) => (value - mean - y[i] * along) / deviation);
  };
  const size = (vector) => Math.sqrt(dot(vector, vector));
  const gradients = (preNorm) => {
    let x = Array.from({ length: width }, draw);
    const layers = matrices.map((matrix) => {
      const inner = preNorm ? norm(x) : null;
      const input = preNorm ? inner.y : x;
      const change = multiply(matrix, input);
      const sum = x.map((value, i) => value + change[i]);
      const outer = preNorm ? null : norm(sum);
      x = preNorm ? sum : outer.y;
      return { inner, outer, input };
    });
    const last = preNorm ? norm(x) : null;
    let g = Array.from({ length: width }, draw);
    if (preNorm) g = normBack(last, g);
    const norms = [];
    for (let layer = depth - 1; layer >= 0; layer--) {
      const { inner, outer, input } = layers[layer];
      if (outer) g = normBack(outer, g);
      norms.unshift([layer + 1, Math.log10(size(g) * size(input))]);
      const through = back(matrices[layer], g);
      const change = preNorm ? normBack(inner, through) : through;
      g = g.map((value, i) => value + change[i]);
    }
    return norms;
  };
  contentOf("norms").append(
    chart([{ name: "pre-norm", points: gradients(true) }, { name: "post-norm", points: gradients(false) }], { title: "log10 of the gradient norm of each of 24 layers at initialization", x: "layer" }),
    text("At initialization. With post-norm, as published in 2017, the last layers have gradients as large as the first at any depth; the first steps are too large there, so post-norm needs warmup. With pre-norm the residual stream grows from layer to layer and the gradients shrink accordingly: a deep stack trains stably from the start."));
};

at("tours").replaceChildren(...tourCards(data.tours));
scores();
scaling();
order();
masking();
positions();
append();
smoothing();
norms();
