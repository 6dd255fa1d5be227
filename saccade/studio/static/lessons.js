// Lessons: the calculations of the lectures, each to be changed by hand.
import { at, digits, make, pixels, table } from "./common.js";
import { chart } from "./chart.js";
import { dot, entropy, mix, random, softmax, times } from "./math.js";

const field = (value, act, name) => {
  const input = make("input", { type: "number", step: "any", value });
  input.setAttribute("aria-label", name);
  input.oninput = () => act(Number(input.value));
  return input;
};
const row = (name, ...parts) => make("p", { className: "row" }, make("b", {}, name), ...parts);
const under = (id) => {
  const place = make("div", {});
  at(id).append(place);
  return place;
};
const text = (words) => make("p", { className: "soft" }, words);

// Score, softmax, weighted sum. 112 and 96, by the root of 64, give 0.88 and 0.12.
const STARTS = { "112, 96": { raw: [112, 96], width: 64, values: [1, 0] }, "1, 1, 1, 5": { raw: [1, 1, 1, 5], width: 1, values: [10, 20, 30, 40] } };
const scores = () => {
  const [place, fields, result] = [under("scores"), make("div", {}), make("div", {})];
  let state = null;
  const draw = () => {
    const scaled = state.raw.map((score) => score / Math.sqrt(state.width));
    const weights = softmax(scaled);
    const shown = (values, count) => values.map((value) => make("code", {}, digits(value, count)));
    result.replaceChildren(
      row("divided by the root of the width", ...shown(scaled)), row("softmax", ...shown(weights, 4)), row("weighted sum", ...shown([dot(weights, state.values)], 4)),
      row("the same without a query", ...shown([state.values.reduce((sum, value) => sum + value, 0) / state.values.length], 4)),
      text("Each exp by the sum of all; only differences of scores count. A query that fits every key alike leaves the plain mean: pooling is attention that does not ask."));
  };
  const start = (given) => {
    state = structuredClone(given);
    const change = (name, list) => state[list].map((value, i) => field(value, (now) => { state[list][i] = now; draw(); }, `${name} ${i + 1}`));
    fields.replaceChildren(row("q.k", ...change("score", "raw")), row("width of a key", field(state.width, (now) => { state.width = now; draw(); }, "width of a key")), row("values", ...change("value", "values")));
    draw();
  };
  const buttons = Object.entries(STARTS).map(([name, given]) => {
    const button = make("button", { type: "button" }, name);
    button.onclick = () => start(given);
    return button;
  });
  place.append(make("div", { className: "row" }, ...buttons), fields, result);
  start(STARTS["112, 96"]);
};

// Random queries and keys: without the root, softmax soon sees one key alone.
const scaling = () => {
  const { normal } = random(7);
  const widths = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
  const flat = (scale) => widths.map((width, i) => {
    let total = 0;
    for (let trial = 0; trial < 20; trial++) {
      const q = Array.from({ length: width }, normal);
      const fits = Array.from({ length: 16 }, () => dot(q, Array.from({ length: width }, normal)) * scale(width));
      total += entropy(softmax(fits)) / Math.log(16) / 20;
    }
    return [i, total];
  });
  under("scaling").append(
    chart([{ name: "q.k / \u221awidth", points: flat((width) => width ** -0.5) }, { name: "q.k", points: flat(() => 1) }], { title: "entropy of the weights over 16 random keys (1: all alike)", x: "log2 of the width" }),
    text("A dot product of random vectors has the variance of its width. Divided by the root it stays 1, and the softmax stays soft; otherwise the gradient dies."));
};

const WORDS = ["the", "dog", "bit", "the", "man"];
const { normal } = random(3);
const known = Object.fromEntries([...new Set(WORDS)].map((word) => [word, Array.from({ length: 4 }, normal)]));
const wave = (place, width) => Array.from({ length: width }, (_, i) => Math[i % 2 ? "cos" : "sin"](place / 10000 ** ((i - (i % 2)) / width)));
const attend = (vectors, allowed = () => true) => vectors.map((q, i) => {
  const weights = softmax(vectors.map((k) => dot(q, k) / 2), vectors.map((_, j) => allowed(i, j)));
  return { weights, output: mix(weights, vectors) };
});

// Shuffled words get the same vectors, until their places are added.
const order = () => {
  const place = under("order");
  let [now, placed] = [[0, 1, 2, 3, 4], false];
  const draw = () => {
    const vectors = now.map((i, at_) => known[WORDS[i]].map((value, c) => value + (placed ? wave(at_, 4)[c] : 0)));
    const outputs = attend(vectors);
    const rows = now.map((i, at_) => make("tr", {}, make("td", {}, WORDS[i]), ...outputs[at_].output.map((value) => make("td", { className: "number" }, digits(value)))));
    const shuffle = make("button", { type: "button" }, "Shuffle");
    shuffle.onclick = () => {
      now = now.map((i) => [Math.random(), i]).sort((one, two) => one[0] - two[0]).map((pair) => pair[1]);
      draw();
    };
    const tick = make("input", { type: "checkbox", checked: placed });
    tick.onchange = () => {
      placed = tick.checked;
      draw();
    };
    place.replaceChildren(make("div", { className: "row" }, shuffle, make("label", {}, tick, " add positions")),
      make("table", {}, make("tbody", {}, ...rows)),
      text(placed ? "With positions each word's output depends on where it stands." : "Whatever the order, each word gets the same output: \u201cthe dog bit the man\u201d is \u201cthe man bit the dog\u201d."));
  };
  draw();
};

// One word is replaced: whose output moves shows who has looked at it.
const SEES = { "Every word sees all": () => true, "No look ahead": (i, j) => j <= i, "Attention taken out": (i, j) => i === j };
const masking = () => {
  const [place, tables] = [under("masking"), make("div", {})];
  const choice = make("select", {}, ...WORDS.map((word, i) => new Option(`${i + 1}. ${word}`, i)));
  choice.value = WORDS.length - 1;
  const read = (words) => words.map((vector, i) => vector.map((value, c) => value + wave(i, 4)[c]));
  const draw = () => {
    const before = WORDS.map((word) => known[word]);
    const after = before.map((vector, i) => (i === Number(choice.value) ? vector.map((value) => -value) : vector));
    tables.replaceChildren(...Object.entries(SEES).flatMap(([name, allowed]) => {
      const [one, two] = [before, after].map((words) => attend(read(words), allowed));
      const moved = one.map(({ output }, i) => Math.max(...output.map((value, c) => Math.abs(value - two[i].output[c]))));
      const rows = one.map(({ weights }, i) => [WORDS[i], ...weights.map((weight) => (weight ? digits(weight) : "0")), moved[i] ? digits(moved[i], 3) : "0"]);
      return [make("h3", {}, name), table(["", ...WORDS, "moves"], rows)];
    }));
  };
  choice.onchange = draw;
  place.append(make("label", {}, "Replace the word ", choice), tables,
    text("Scores of the future become minus infinity before the softmax: their weight is exactly 0, and the rest still sums to 1. So nothing before the replaced word moves, by exactly 0. Without attention only the replaced word itself moves: norm and MLP never mix words."));
  draw();
};

// 20 places, 512 features.
const positions = () => {
  const canvas = make("canvas", {});
  const mixed = make("input", { type: "checkbox" });
  const halves = (row) => [...row.filter((_, i) => i % 2 === 0), ...row.filter((_, i) => i % 2)];
  const draw = () => {
    const rows = Array.from({ length: 20 }, (_, place) => wave(place, 512)).map((row) => (mixed.checked ? row : halves(row)));
    pixels(canvas, rows.flat().map((value) => (value + 1) / 2), 512);
  };
  mixed.onchange = draw;
  Object.assign(canvas.style, { width: "100%", height: "12rem", imageRendering: "pixelated" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "20 rows of 512 sines and cosines");
  under("positions").append(canvas, make("label", {}, mixed, " sines and cosines in turn, as published"),
    text("Rows are the places 0 to 19, columns the 512 features: 256 sines, then 256 cosines, from fast waves to slow ones."));
  addEventListener("theme", draw);
  draw();
};

// A row of a matrix for each place, appended as a one-hot vector or added as a vector of its own.
const append = () => {
  const [place, result] = [under("append"), make("div", {})];
  const { normal: draw } = random(9);
  const [x, word, learnt] = [[0.5, -1, 2], ...[3, 4].map((width) => [0, 1].map(() => Array.from({ length: width }, () => Number(draw().toFixed(2)))))];
  const choice = make("select", {}, ...[0, 1, 2, 3].map((i) => new Option(i, i)));
  const fixed = make("input", { type: "checkbox" });
  const show = () => {
    const at_ = Number(choice.value);
    const places = fixed.checked ? [0, 1].map((c) => [0, 1, 2, 3].map((i) => wave(i, 2)[c])) : learnt;
    const one = [0, 1, 2, 3].map((i) => Number(i === at_));
    const [whole, a, e] = [times(word.map((line, r) => [...line, ...places[r]]), [...x, ...one]), times(word, x), times(places, one)];
    const shown = (vector) => vector.map((value) => make("code", {}, digits(value, 3)));
    result.replaceChildren(
      row("the word x", ...shown(x)), row("its place p, one-hot", ...one.map((value) => make("code", {}, value))), row("W [x; p]", ...shown(whole)),
      row("a = W_I x", ...shown(a)), row("e = W_P p, a column of W_P", ...shown(e)), row("a + e", ...shown(a.map((value, i) => value + e[i]))),
      row("difference", make("code", {}, Math.max(...whole.map((value, i) => Math.abs(value - (a[i] + e[i])))))));
  };
  choice.onchange = fixed.onchange = show;
  place.append(make("div", { className: "row" }, make("label", {}, "Place ", choice), make("label", {}, fixed, " sines and cosines instead of a learned table")), result,
    text("To append where a word stands and to add a vector for its place is the same thing. W_P may be learned or fixed."));
  show();
};

// A query's value as a weighted mean of values nearby: by a kernel, by a Gaussian process, by attention with a learned width.
const smoothing = () => {
  const { next, normal: noise } = random(11);
  const points = Array.from({ length: 24 }, () => 5 * next()).sort((one, two) => one - two).map((x) => [x, 2 * Math.sin(x) + x ** 0.8 + 0.4 * noise()]);
  const grid = Array.from({ length: 80 }, (_, i) => (i * 5) / 79);
  const kernel = (one, two, width) => Math.exp(-((one - two) ** 2) / (2 * width * width));
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
    const found = Array(rows.length).fill(0);
    for (let i = rows.length - 1; i >= 0; i--) found[i] = (rows[i][rows.length] - dot(rows[i].slice(i + 1, rows.length), found.slice(i + 1))) / rows[i][i];
    return found;
  };
  const noisy = (width) => points.map(([one], i) => points.map(([two], j) => kernel(one, two, width) + (i === j ? 0.16 : 0)));
  const gaussian = (x, width) => solve(noisy(width), points.map(([px]) => kernel(x, px, width)));
  const learned = () => { // the width whose attention foretells each point best from the others
    const miss = (width) => points.reduce((sum, [x, y], i) => sum + (dot(nearby(x, width, i), heights) - y) ** 2, 0);
    return Array.from({ length: 60 }, (_, i) => 0.05 * 1.07 ** i).reduce((best, width) => (miss(width) < miss(best) ? width : best));
  };
  const place = under("smoothing");
  const width = make("input", { type: "range", min: 0.05, max: 2, step: 0.05, value: 1 });
  width.setAttribute("aria-label", "width of the kernel");
  const picture = make("div", {});
  const best = learned();
  const draw = () => {
    const wide = Number(width.value);
    const ways = {
      "kernel smoothing": (x) => nearby(x, wide),
      "Gaussian process": (x) => gaussian(x, wide),
      [`attention, learned width ${digits(best)}`]: (x) => nearby(x, best),
    };
    const weights = Object.entries(ways).map(([name, way]) => [name, grid.map(way)]);
    const curves = weights.map(([name, rows]) => ({ name, points: rows.map((row, i) => [grid[i], dot(row, heights)]) }));
    picture.replaceChildren(
      chart([...curves, { name: "truth", points: grid.map((x) => [x, 2 * Math.sin(x) + x ** 0.8]), faint: true }], { title: `24 noisy points, kernel width ${width.value}`, x: "x" }),
      make("div", { className: "row" }, ...weights.map(([name, rows]) => map(name, rows))));
  };
  const map = (name, rows) => {
    const canvas = make("canvas", {});
    const most = Math.max(...rows.flat());
    pixels(canvas, rows.flat().map((weight) => weight / most), points.length);
    Object.assign(canvas.style, { width: "100%", height: "7rem", imageRendering: "pixelated" });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `weights of the 24 points (columns) for each x (rows): ${name}`);
    const place = make("figure", {}, canvas, make("figcaption", { className: "soft" }, name));
    place.style.flex = "1 1 9rem";
    return place;
  };
  width.oninput = draw;
  addEventListener("theme", draw);
  place.append(make("label", {}, "Width of the kernel ", width), picture,
    text("Kernel smoothing is attention with fixed queries and keys: softmax of minus the squared distance. Learning the width makes it sharper; the Gaussian process also unmixes neighbours that say the same. The three pictures: how much each of the 24 points (columns) counts at each x (rows, from 0 at the top to 5)."));
  draw();
};

// How large the gradient of each layer's weights is in a fresh stack.
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
  const slopes = (before) => {
    let x = Array.from({ length: width }, draw);
    const kept = matrices.map((matrix) => {
      const inner = before ? norm(x) : null;
      const input = before ? inner.y : x;
      const change = multiply(matrix, input);
      const sum = x.map((value, i) => value + change[i]);
      const outer = before ? null : norm(sum);
      x = before ? sum : outer.y;
      return { inner, outer, input };
    });
    const last = before ? norm(x) : null;
    let g = Array.from({ length: width }, draw);
    if (before) g = normBack(last, g);
    const found = [];
    for (let layer = depth - 1; layer >= 0; layer--) {
      const { inner, outer, input } = kept[layer];
      if (outer) g = normBack(outer, g);
      found.unshift([layer + 1, Math.log10(size(g) * size(input))]);
      const through = back(matrices[layer], g);
      const change = before ? normBack(inner, through) : through;
      g = g.map((value, i) => value + change[i]);
    }
    return found;
  };
  under("norms").append(
    chart([{ name: "norm before each block", points: slopes(true) }, { name: "norm after each block", points: slopes(false) }], { title: "log10 of the gradient of the weights of each of 24 layers", x: "layer" }),
    text("Fresh weights, before the first step. With the norm after each block, as published in 2017, the last layers get as large a gradient as the first, however deep the stack: the first steps are too large there, and that order needs a warm-up. With the norm inside the block the stream grows from layer to layer, and the gradient falls with its size: a deep stack begins gently."));
};

scores();
scaling();
order();
masking();
positions();
append();
smoothing();
norms();
