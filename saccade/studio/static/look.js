// The Look page: predict, then show the attention of every layer and head.
import { at, data, decodeBytes, digits, drawPixels, make, outputText, query, request, showError, updateAddress } from "./studio.js";
import { cellsOf } from "./cells.js";
import { explanations } from "./explanations.js";
import { buildInputs, exampleName, havePictures, isEmpty, optionControls, optionText, parseOptionText, readInputs, readOptions, textInputs, writeInputs, writeOptions } from "./form.js";
import { generate } from "./generation.js";
import { drawHeatScale, drawThumbnail, style, withImages } from "./heat.js";
import { colourOf, keys, lines, SHOWN } from "./lines.js";
import { Matrix } from "./matrix.js";
import { pictureView } from "./pictures.js";
import { followProgress } from "./progress.js";
import { showAxis } from "./views.js";
import { playPart } from "./views/time.js";

// patch: a cell of the image, -1 for none; to: whether attention to the selected patch is shown, not from it.
const state = { model: "", inputs: {}, view: "", map: "", heads: [], words: true, row: 0, column: 0, patch: -1, to: false, path: true, cell: 0, sqrt: null, ablations: [] };
let prediction = null; // on screen
let matrix = null;
const LONG = 64; // columns; with more, most weights are small
const FRAME = 700; // milliseconds per query while playing
let first = 0; // token at the top of the line view
const thumbnails = new Map(); // of heads, by map

const map = () => prediction.maps.find((entry) => entry.name === state.map) ?? prediction.maps[0];
const axes = () => [map().queries, map().keys ?? map().queries];
const overImage = () => axes()[1].kind === "grid";
const overGraph = () => axes()[1].kind === "nodes" && axes()[1].positions.length > 0;
const isEpisode = () => Boolean(axes()[0].frames);
const overTime = () => axes()[1].kind === "time";
// When each row was said: letters or words, whichever the rows are; nothing for other maps.
const timesOf = (rows) => {
  const { letters = [], words = [] } = prediction.times ?? {};
  if (map().queries.kind !== "tokens") return [];
  return state.words && map().queries.words?.length ? words : letters.slice(0, rows.length);
};
const labelsOf = (axis) => (state.words && axis.merged) || axis.labels;
const labels = () => axes().map(labelsOf);
// The first token of a word: the model counts tokens.
const tokenOf = (row) => {
  const words = map().queries.words ?? [];
  if (!state.words || !words.length) return row;
  return words.indexOf([...new Set(words)][row]);
};
const fetchCells = (head) => {
  const [rows, columns] = labels().map(({ length }) => length);
  return cellsOf({ id: prediction.id, map: state.map, heads: map().heads, rows, columns, words: state.words }, head);
};
const updateLink = () => {
  const { model, view, map: name, row, column, patch, words } = state;
  const picture = { patch: patch < 0 ? "" : patch, to: state.to ? "1" : "", path: state.path ? "" : "0" };
  updateAddress({ model, ...textInputs(prediction.inputs), view, map: name, head: state.heads.join(","), row, column, ...picture, words: words ? "" : "0", sqrt: state.sqrt === null ? "" : Number(state.sqrt), options: optionText(at("options")) });
};

// The form.
const describeModel = async () => {
  if (!at("model").value) return;
  try {
    const form = await request(`/api/models/${encodeURIComponent(at("model").value)}/form`);
    const before = at("inputs").fields ? readInputs(at("inputs")) : {};
    buildInputs(at("inputs"), form.inputs, submit, form.examples);
    await writeInputs(at("inputs"), before);
    at("generate").hidden = !form.generates;
    at("options").replaceChildren(...optionControls(form.options));
    at("examples").replaceChildren(new Option("choose\u2026", ""), ...form.examples.map((values, i) => new Option(exampleName(values), i)));
    at("examples").parentElement.hidden = !form.examples.length || havePictures(form.examples); // those are in the form
    at("examples").onchange = () => at("examples").value && writeInputs(at("inputs"), form.examples[Number(at("examples").value)]);
    if (isEmpty(at("inputs")) && form.examples.length) await writeInputs(at("inputs"), form.examples[0]);
    showError();
  } catch (error) {
    showError(error);
  }
};
const busy = (on) => {
  at("submit").disabled = at("generate").disabled = on;
  at("submit").textContent = on ? "Predicting\u2026" : "Predict";
};
const submit = async (event) => {
  event?.preventDefault();
  if (!at("model").value || !at("inputs").fields) return;
  busy(true);
  at("generation").hidden = true;
  Object.assign(state, { model: at("model").value, inputs: readInputs(at("inputs")), ablations: [] });
  const progress = followProgress((fraction) => { at("submit").textContent = `Predicting\u2026 ${Math.round(100 * fraction)}%`; });
  try {
    const start = performance.now();
    const body = { model: state.model, inputs: state.inputs, options: readOptions(at("options")), ticket: progress.ticket };
    prediction = await request("/api/look", body);
    progress.end();
    withImages(prediction.maps, prediction.images);
    showError();
    showPrediction();
    await showThumbnails();
    document.body.dataset.shown = String(Math.round(performance.now() - start));
  } catch (error) {
    showError(error);
  } finally {
    progress.end();
    busy(false);
  }
};

const showPrediction = () => {
  at("empty").hidden = true;
  at("results").hidden = false;
  const { text } = prediction.output;
  at("output").textContent = prediction.continues ? Object.values(prediction.inputs)[0] + text : outputText(prediction.output, prediction.generated);
  if (prediction.output.png) at("output").replaceChildren(make("img", { className: "preview coarse", alt: text, src: `data:image/png;base64,${prediction.output.png}` }));
  at("scores").replaceChildren(...Object.entries(prediction.scores).slice(0, 12).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, digits(value, 4)))),
    ...(prediction.notes ?? []).map((note) => make("div", {}, make("dt", {}, "note"), make("dd", { dir: "auto" }, note))));
  if (!prediction.maps.length) {
    at("view").replaceChildren(make("p", { className: "soft" }, "This model has no attention to show."));
    at("heads").replaceChildren();
    return;
  }
  if (!prediction.maps.some((entry) => entry.name === state.map)) [state.map, state.heads] = [prediction.maps[0].name, []];
  state.heads = state.heads.filter((head) => head < map().heads);
  render();
  explanation.reset();
};

// Thumbnails of all heads, to choose from: layer by layer, that on screen first; the picture does not wait for them.
const showThumbnails = async () => {
  const [shown, onScreen] = [prediction, state.map];
  thumbnails.clear();
  showHeads();
  const names = prediction.maps.map(({ name }) => name).filter((name) => !["alignment", "rollout"].includes(name));
  for (const name of names.sort((a, b) => (b === onScreen) - (a === onScreen))) {
    const [entry] = await request(`/api/look/${shown.id}/overview?${query({ map: name })}`);
    if (prediction !== shown) return;
    thumbnails.set(name, { ...entry, cells: decodeBytes(entry.cells) });
    const i = prediction.maps.findIndex((other) => other.name === name);
    at("heads").children[i].replaceWith(layerOf(prediction.maps[i]));
    markSelected();
  }
};
const showHeads = () => {
  at("heads").replaceChildren(...prediction.maps.map(layerOf));
  markSelected();
};
const layerOf = ({ name, heads, queries, keys: keyAxis }) => {
  const axis = keyAxis ?? queries;
  const mean = make("button", { type: "button", className: "quiet" }, heads > 1 ? "mean" : "show");
  mean.dataset.map = name;
  mean.setAttribute("aria-label", `${name}, mean over heads`);
  mean.onclick = () => choose(name, null);
  const picture = thumbnails.get(name);
  const buttons = Array.from({ length: picture && heads > 1 ? heads : 0 }, (_, head) => {
    const canvas = make("canvas", {});
    const size = picture.rows * picture.columns;
    const cells = picture.cells.subarray(head * size, (head + 1) * size);
    if (axis.kind === "grid") drawThumbnail(canvas, cells, axis);
    else drawPixels(canvas, cells, picture.columns, 1);
    const button = make("button", { type: "button", className: "thumb" }, canvas);
    button.classList.toggle("ablated", state.ablations.some((ablation) => ablation.map === name && ablation.head === head && ablation.query === undefined));
    button.setAttribute("aria-label", `${name}, head ${head}`);
    button.title = `${name}, head ${head} (Shift+click adds it)`;
    Object.assign(button.dataset, { map: name, head });
    button.onclick = (event) => choose(name, head, event.shiftKey);
    return button;
  });
  return make("div", { className: "layer" }, make("span", {}, name), mean, ...buttons);
};
const markSelected = () => {
  for (const button of at("heads").querySelectorAll("button")) {
    const { map: name, head } = button.dataset;
    const on = head === undefined ? !state.heads.length : state.heads.includes(Number(head));
    button.setAttribute("aria-pressed", String(on && name === state.map));
  }
};
const choose = (name, head, add = false) => {
  if (name !== state.map) [state.row, state.column, state.patch, first] = [0, 0, -1, 0];
  if (head === null) state.heads = [];
  else if (add && name === state.map) state.heads = state.heads.includes(head) ? state.heads.filter((selected) => selected !== head) : [...state.heads, head];
  else state.heads = [head];
  state.map = name;
  const start = performance.now();
  let drawn = false;
  render(() => {
    if (drawn) return;
    drawn = true;
    document.body.dataset.switched = String(Math.round(performance.now() - start));
    explanation.changed(); // after the map, which must not wait for it
  });
  markSelected();
};

// What one query is called where a map is shown query by query unless another view is chosen; null: it opens as a matrix.
const queryView = () => (isEpisode() ? "Replay" : overImage() ? "Picture" : overGraph() ? "Graph" : overTime() ? "Sound" : null);
const currentView = () => state.view || (queryView() ? "query" : "matrix");
const render = (done) => {
  updateLink();
  matrix?.close();
  matrix = null;
  const [rows, columns] = labels();
  const view = currentView();
  [state.row, state.column, state.patch] = [Math.min(state.row, rows.length - 1), Math.min(state.column, columns.length - 1), Math.min(state.patch, columns.length - 1)];
  document.querySelector("[data-view=query]").textContent = queryView() ?? "One query";
  at("selection").textContent = `${state.map}${state.heads.length ? `, head ${state.heads.join(", ")}` : map().heads > 1 ? `, mean of ${map().heads} heads` : ""}`;
  for (const tab of document.querySelectorAll("[data-view]")) tab.setAttribute("aria-selected", String(tab.dataset.view === view));
  at("cell").parentElement.hidden = at("sqrt").parentElement.hidden = view !== "matrix";
  at("words").parentElement.hidden = !axes().some((axis) => axis.words?.length);
  const sqrt = at("sqrt").checked = state.sqrt ?? columns.length > LONG;
  at("steps").href = `/steps?${query({ model: state.model, ...textInputs(prediction.inputs), map: state.map, head: state.heads[0] ?? 0, query: tokenOf(state.row), options: optionText(at("options")) })}`;
  drawPixels(at("scale"), Array.from({ length: 64 }, (_, i) => (sqrt && view === "matrix" ? Math.sqrt(i / 63) : i / 63)), 64);
  if (view === "query" && overImage()) drawHeatScale(at("scale"));
  at("hint").textContent = view === "query" && overGraph() ? "Click a node to see what it attends to; arrow keys go to the next one." : "Hover over a cell or a token; click to pin it; arrow keys move the selection.";
  showDownloads();
  ({ matrix: showMatrix, lines: showLines, query: showQuery })[view](rows, columns, done);
};
const showMatrix = (rows, columns, done) => {
  const head = state.heads.at(-1);
  matrix = new Matrix({
    rows, columns, cell: state.cell, sqrt: at("sqrt").checked,
    fetch: fetchCells(head),
    complete: () => {
      at("largest").textContent = digits(matrix?.largest ?? 1);
      done?.();
      document.body.dataset.drawn = String(performance.now());
    },
    select: (row, column, pinned) => {
      [state.row, state.column] = [row, column];
      showStatus(rows[row], [[columns[column], matrix.weight(row, column)]], pinned);
      if (pinned) updateLink();
    },
  });
  matrix.selected = [state.row, state.column];
  at("view").replaceChildren(matrix.node);
  matrix.layout(); // at once: the browser would report its width with the next frame
  at("status").textContent = `${rows.length} queries (rows), ${columns.length} keys (columns)`;
};
const showStatus = (row, pairs, pinned, arrow = "\u2190") => {
  const line = [make("b", {}, make("bdi", {}, row)), ` ${arrow} `];
  pairs.forEach(([label, weight], i) => line.push(i ? ", " : "", make("bdi", {}, label), ` ${digits(weight, 4)}`));
  at("status").replaceChildren(...line, pinned ? make("small", {}, "  pinned") : "");
};
const strongest = (weights, columns) => [...weights].map((weight, i) => [columns[i], weight]).sort((a, b) => b[1] - a[1]).slice(0, 5);
const showLines = async (rows, columns, done) => {
  const count = Math.min(SHOWN, Math.max(rows.length, columns.length));
  first = Math.min(first, Math.max(0, Math.max(rows.length, columns.length) - count));
  const [top, bottom] = [Math.min(first, rows.length), Math.min(first + count, rows.length)];
  const [left, right] = [Math.min(first, columns.length), Math.min(first + count, columns.length)];
  const chosen = state.heads.length ? state.heads : [null];
  try {
    const heads = await Promise.all(chosen.map(async (head, i) => ({
      name: head === null ? "mean" : `head ${head}`, colour: colourOf(i), weights: await fetchCells(head)(top, bottom, left, right),
    })));
    const draw = (row) => {
      const picture = lines({
        rows: rows.slice(top, bottom), columns: columns.slice(left, right), heads, selected: row,
        select: (i, pin) => {
          state.row = top + i;
          if (pin) updateLink();
          const weights = heads[0].weights.subarray(i * (right - left), (i + 1) * (right - left));
          showStatus(rows[state.row], strongest(weights, columns.slice(left, right)), pin);
          if (row !== i) draw(i);
        },
      });
      at("view").replaceChildren(...pager(Math.max(rows.length, columns.length), count), make("div", { className: "row" }, ...keys(heads)), picture);
    };
    draw(-1);
    done?.();
  } catch (error) {
    showError(error);
  }
};
const pager = (total, count) => {
  if (total <= count) return [];
  const slider = make("input", { type: "range", min: 0, max: total - count, value: first });
  slider.setAttribute("aria-label", "first token shown");
  slider.onchange = () => {
    first = Number(slider.value);
    render();
  };
  return [slider];
};
const axisSection = (title, view) => make("section", { className: "axis" }, make("h3", {}, title), view);
// One query: the weights of its keys, each axis in the view of its class.
const showQuery = async (rows, columns, done) => {
  if (overImage()) return showPicture(rows, columns, done);
  const [queries, keyAxis] = axes();
  const times = overTime() ? timesOf(rows) : [];
  const select = (i) => {
    stop();
    state.row = i;
    render();
    if (times[i]) playPart(times[i]);
  };
  try {
    const weights = await fetchCells(state.heads.at(-1))(state.row, state.row + 1, 0, columns.length);
    const largest = Math.max(...weights, 1e-6);
    at("largest").textContent = digits(largest);
    const sections = [
      axisSection(isEpisode() ? "Step" : "Query", showAxis({ axis: queries, labels: rows, selected: state.row, select })),
      axisSection("Keys, by attention weight", showAxis({ axis: keyAxis, labels: columns, values: weights, largest, mark: times[state.row], selected: weights.indexOf(Math.max(...weights)) })),
    ];
    if (overGraph()) {
      const focus = at("view").contains(document.activeElement);
      at("view").replaceChildren(showAxis({ axis: keyAxis, labels: columns, values: weights, largest, selected: state.row, select }));
      if (focus) at("view").querySelector(".graph-view").focus({ preventScroll: true });
    } else at("view").replaceChildren(...(isEpisode() ? sections.reverse() : sections)); // the frame of a step is large
    showStatus(rows[state.row], strongest(weights, columns), true);
    done?.();
  } catch (error) {
    showError(error);
  }
  return undefined;
};
// Over an image. The control with the focus keeps it: a picture is walked over with the arrow keys.
const controls = () => [...at("view").querySelectorAll("button, select, input, [tabindex]")];
let latest = 0; // of several requests only the last is shown
const showPicture = async (rows, columns, done) => {
  const [queries, keyAxis] = axes();
  const [head, number] = [state.heads.at(-1), ++latest];
  const change = (values) => {
    stop();
    Object.assign(state, values);
    render();
  };
  try {
    const view = await pictureView({
      state, rows, columns, queries, keys: keyAxis, fetch: fetchCells(head), change,
      self: map().keys === null, name: [prediction.id, state.map, head, state.words].join(" "),
    });
    if (number !== latest || currentView() !== "query") return;
    const focus = controls().indexOf(document.activeElement);
    at("view").replaceChildren(...view.parts);
    if (focus >= 0) controls()[focus]?.focus({ preventScroll: true });
    at("largest").textContent = digits(view.largest);
    showStatus(view.from, strongest(view.values, view.labels), true, view.reverse ? "\u2192" : "\u2190");
    done?.();
  } catch (error) {
    showError(error);
  }
};

// Play: step through the queries.
let timer = 0;
const stop = () => {
  clearInterval(timer);
  timer = 0;
  at("play").textContent = "Play";
  at("play").setAttribute("aria-pressed", "false");
};
const step = (by) => {
  stop();
  Object.assign(state, { view: "query", row: Math.min(Math.max(state.row + by, 0), labels()[0].length - 1) });
  render();
};
const play = () => {
  if (timer) return stop();
  Object.assign(state, { view: "query", row: state.row + 1 < labels()[0].length ? state.row : 0 });
  render();
  timer = setInterval(() => {
    if (state.view !== "query" || state.row + 1 >= labels()[0].length) return stop();
    state.row += 1;
    render();
  }, FRAME);
  at("play").textContent = "Pause";
  at("play").setAttribute("aria-pressed", "true");
};

// Downloads of the figure on screen.
const showDownloads = () => {
  const head = state.heads.at(-1) ?? "mean";
  const [queries] = axes();
  const film = isEpisode() || (overImage() && queries.kind !== "grid");
  const patch = state.row - (queries.extra?.length ?? 0);
  const chosen = queries.kind === "grid" && patch >= 0 ? { at: `${Math.floor(patch / queries.columns)},${patch % queries.columns}` } : {};
  const drawn = overImage() ? { opacity: style.opacity, smooth: style.smooth ? 1 : 0, ...chosen } : { sqrt: at("sqrt").checked ? 1 : 0 };
  const address = (kind) => `/api/look/${prediction.id}/export.${kind}?${query({ map: state.map, head, words: state.words ? 1 : 0, ...drawn })}`;
  const times = overTime() && queries.kind === "tokens" ? ["TextGrid", "srt"] : [];
  at("export").replaceChildren("Download ", ...["svg", "png", ...(film ? ["gif"] : []), "html", "json", ...times].map((kind) =>
    make("a", { href: address(kind), download: `attention.${kind}` }, kind === "TextGrid" ? kind : kind.toUpperCase())));
};

const explanation = explanations({ state, prediction: () => prediction, changed: () => showHeads(), failed: showError });
for (const tab of document.querySelectorAll("[data-view]")) tab.onclick = () => {
  state.view = tab.dataset.view;
  render();
};
at("words").onchange = () => {
  Object.assign(state, { words: at("words").checked, row: 0, column: 0 });
  render();
};
at("sqrt").onchange = () => {
  state.sqrt = at("sqrt").checked;
  render();
};
at("cell").onchange = () => {
  state.cell = Number(at("cell").value);
  render();
};
at("form").onsubmit = submit;
at("generate").onclick = async () => {
  busy(true);
  showError();
  at("empty").hidden = true;
  try {
    const inputs = readInputs(at("inputs"));
    const text = await generate({ model: at("model").value, inputs, options: readOptions(at("options")), map: state.map });
    const [field] = at("inputs").fields;
    if (prediction?.continues ?? true) await writeInputs(at("inputs"), { [field.name]: inputs[field.name] + text });
  } catch (error) {
    showError(error);
  } finally {
    busy(false);
  }
};
at("play").onclick = play;
at("previous").onclick = () => step(-1);
at("next").onclick = () => step(1);
addEventListener("heat", () => prediction?.maps.length && showDownloads());
at("model").onchange = () => describeModel();
addEventListener("theme", () => prediction?.maps.length && (render(), showHeads()));

// A link restores the same view.
const start = async () => {
  at("model").replaceChildren(...data.models.map((name) => new Option(name)));
  const { model, view, map: name, head, row, column, patch, to, path, words, sqrt, options } = data.parameters;
  if (model && data.models.includes(model)) at("model").value = model;
  Object.assign(state, { view: ["matrix", "lines", "query"].includes(view) ? view : "", map: name ?? "", row: Number(row) || 0, column: Number(column) || 0 });
  Object.assign(state, { patch: /^\d+$/.test(patch ?? "") ? Number(patch) : -1, to: to === "1", path: path !== "0" });
  state.heads = (head ?? "").split(",").filter((part) => /^\d+$/.test(part)).map(Number);
  state.words = at("words").checked = words !== "0";
  state.sqrt = sqrt ? sqrt === "1" : null;
  await describeModel();
  const given = (at("inputs").fields ?? []).filter((field) => data.parameters[field.name] !== undefined);
  const complete = await writeInputs(at("inputs"), data.parameters);
  writeOptions(at("options"), parseOptionText(options));
  document.body.dataset.ready = "1";
  const needsNothing = Boolean(options) && (at("inputs").fields ?? []).every((field) => field.optional);
  if ((given.length || needsNothing) && complete) await submit();
};
start();
