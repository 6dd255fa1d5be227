// The Look page: predict, then show the attention of every layer and head.
import { at, data, digits, drawPixels, listModels, make, number, query, request, showError, updateAddress } from "./studio.js";
import { cellsOf } from "./cells.js";
import { explanations } from "./explanations.js";
import { clearErrors, placeError } from "./errors.js";
import { buildInputs, exampleName, havePictures, isEmpty, optionControls, optionText, parseOptionText, readInputs, readOptions, textInputs, writeInputs, writeOptions } from "./form.js";
import { drawHeatScale, style, withImages } from "./heat.js";
import { colourOf, drawLineScale, keys, lines, SHOWN } from "./lines.js";
import { pictureView } from "./pictures.js";
import { followProgress, showBusy } from "./progress.js";
import { headSearch } from "./search.js";
import { tabs } from "./tabs.js";
import { PartMatrix, textFilter } from "./texts.js";
import { headThumbnails } from "./thumbnails.js";
import { showResult } from "./result.js";
import { tokenStrips } from "./strips.js";
import { showAxis } from "./views.js";
import { drawTintScale } from "./views/tokens.js";
import { playPart } from "./views/time.js";

// row, column: the query and the key that are selected, -1 for no key; pinned: whether they stay, also in other heads.
// patch: a cell of the image, -1 for none; to: whether attention to the selected patch is shown, not from it.
const state = { model: "", inputs: {}, view: "", map: "", heads: [], words: true, row: 0, column: 0, pinned: false, patch: -1, to: false, path: true, cell: 0, sqrt: null, ablations: [] };
let prediction = null; // on screen
let matrix = null;
const HINTS = { matrix: "Click a cell to pin it; arrow keys move it.", lines: "Click a query to pin it; arrow keys go to the next one.", query: "Click a query to see what it attends to." };
const LONG = 64; // columns; with more, most weights are small
const MOST_FRAMES = 400; // queries or words of a film
const FRAME = 700; // milliseconds per query while playing
let first = 0; // token at the top of the line view

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
const firstToken = (axis, word) => (axis.words?.length ? axis.words.indexOf([...new Set(axis.words)][word]) : word);
const wordOf = (axis, token) => (axis.words?.length ? [...new Set(axis.words)].indexOf(axis.words[token]) : token);
const tokenOf = (row) => (state.words ? firstToken(map().queries, row) : row);
const compareLink = make("a", { id: "compare", href: "/compare" }, "Compare with another input");
at("steps").before(compareLink);
const texts = textFilter(at("words").parentElement, () => {
  updateLink();
  render();
});
const spans = () => texts.spans(axes(), labels(), state.words ? wordOf : (_, token) => token);
const fetchCells = (head) => {
  const [rows, columns] = labels().map(({ length }) => length);
  return cellsOf({ id: prediction.id, map: state.map, heads: map().heads, rows, columns, words: state.words }, head);
};
// push: another view, to which Back returns; else something in it has changed.
const updateLink = (push = false) => {
  const { model, view, map: name, row, patch, words } = state;
  const column = state.column < 0 ? "" : state.column;
  const picture = { patch: patch < 0 ? "" : patch, to: state.to ? "1" : "", path: state.path ? "" : "0" };
  updateAddress({ model, ...textInputs(prediction.inputs), view, map: name, head: state.heads.join(","), row, column, pin: state.pinned ? "1" : "", ...picture, words: words ? "" : "0", sqrt: state.sqrt === null ? "" : Number(state.sqrt), texts: texts.choice, options: optionText(at("options")) }, { push, saved: { prediction: prediction.id } });
};

// The form.
const describeModel = async () => {
  const { value: name } = at("model");
  if (!name) return;
  try {
    const form = await request(`/api/models/${encodeURIComponent(name)}/form`);
    if (name !== at("model").value) return; // another one was chosen while this was loaded
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
  showBusy(on);
  at("generate").disabled = on;
};
// push: whether Back returns to what is shown now.
const submit = async (event, push = true) => {
  event?.preventDefault();
  if (!at("model").value || !at("inputs").fields) return;
  busy(true);
  Object.assign(state, { model: at("model").value, inputs: readInputs(at("inputs")), ablations: [] });
  const progress = followProgress();
  clearErrors(at("form"));
  try {
    const start = performance.now();
    const body = { model: state.model, inputs: state.inputs, options: readOptions(at("options")), ticket: progress.ticket };
    const answer = await request("/api/look", body);
    progress.end();
    await show(answer, push);
    clearErrors(at("form"));
    document.body.dataset.shown = String(Math.round(performance.now() - start));
  } catch (error) {
    placeError(at("form"), error);
  } finally {
    progress.end();
    busy(false);
  }
};

// Show a prediction. What is pinned stays if the same words are there.
const show = async (answer, push) => {
  const pair = () => labels().map((names, i) => names[[state.row, state.column][i]]).join("\n");
  const before = push && prediction?.maps.length && state.pinned ? pair() : null;
  prediction = answer;
  withImages(prediction.maps, prediction.images);
  showOutput();
  if (!prediction.maps.length) {
    updateLink(push);
    at("view").replaceChildren(make("p", { className: "soft" }, "This model has no attention to show."));
    for (const id of ["heads", "matches"]) at(id).replaceChildren();
    at("follow").hidden = true;
    strips.show([], [[], []]);
    return;
  }
  if (!prediction.maps.some((entry) => entry.name === state.map)) [state.map, state.heads] = [prediction.maps[0].name, []];
  state.heads = state.heads.filter((head) => head < map().heads);
  if (before !== null && before !== pair()) Object.assign(state, { row: 0, column: 0, pinned: false });
  updateLink(push);
  render();
  explanation.reset();
  await thumbnails.load();
};
const showOutput = () => {
  at("empty").hidden = true;
  at("results").hidden = false;
  showResult(prediction);
};

// Whether two maps show the same sequences; one may go on at its end, such as with a token for it.
const sameAxis = (one, other) => {
  if (one === other) return true;
  const [a, b] = [labelsOf(one), labelsOf(other)];
  const count = Math.min(a.length, b.length);
  return one.kind === other.kind && one.role === other.role && Math.abs(a.length - b.length) <= 1 && a.slice(0, count).every((label, i) => label === b[i]);
};
const choose = (name, head, add = false) => {
  const before = axes();
  if (head === null) state.heads = [];
  else if (add && name === state.map) state.heads = state.heads.includes(head) ? state.heads.filter((selected) => selected !== head) : [...state.heads, head];
  else state.heads = [head];
  const other = name !== state.map;
  state.map = name;
  if (other && !axes().every((axis, i) => sameAxis(axis, before[i]))) {
    Object.assign(state, { row: 0, column: 0, pinned: false, patch: -1 });
    first = 0;
  }
  updateLink(true);
  const start = performance.now();
  let drawn = false;
  render(() => {
    if (drawn) return;
    drawn = true;
    document.body.dataset.switched = String(Math.round(performance.now() - start));
    explanation.changed(); // after the map, which must not wait for it
  });
  thumbnails.mark();
};
// Pin a query, or a query and a key; a row of -1 releases them.
const pin = (row, column = -1) => {
  const pinned = row >= 0;
  if (matrix) return matrix.pin(pinned ? row : state.row, pinned ? column : state.column, pinned);
  Object.assign(state, pinned ? { row, column, pinned } : { pinned });
  updateLink();
  render();
  return undefined;
};
const selected = () => (state.pinned ? { query: state.row, key: state.column } : null);
const strips = tokenStrips({ state, pin, weights: (row) => fetchCells(state.heads.at(-1))(row, row + 1, 0, labels()[1].length) });
const search = headSearch({
  state, prediction: () => prediction, pin: selected, clear: () => pin(-1),
  open: (name, head, key) => {
    state.column = key;
    choose(name, head);
  },
});
const thumbnails = headThumbnails({
  state, prediction: () => prediction, choose,
  isAblated: (name, head) => state.ablations.some((ablation) => ablation.map === name && ablation.head === head && ablation.query === undefined),
});

// What one query is called where a map is shown query by query unless another view is chosen; null: it opens as a matrix.
const queryView = () => (isEpisode() ? "Replay" : overImage() ? "Picture" : overGraph() ? "Graph" : overTime() ? "Sound" : null);
const currentView = () => state.view || (queryView() ? "query" : "matrix");
const SCALES = { grid: drawHeatScale, nodes: null, time: null };
// The colours of the legend are those of the view, up to the largest weight in it.
const showScale = (view, sqrt) => {
  const draw = view === "lines" ? drawLineScale : view === "query" ? (SCALES[axes()[1].kind] === undefined ? drawTintScale : SCALES[axes()[1].kind]) : null;
  if (draw) draw(at("scale"));
  else drawPixels(at("scale"), Array.from({ length: 64 }, (_, i) => (sqrt && view === "matrix" ? Math.sqrt(i / 63) : i / 63)), 64);
};
const largest = (value) => {
  at("largest").textContent = value >= 0.01 ? String(Number(value.toFixed(2))) : number(value, 2);
};
const render = (done) => {
  matrix?.close();
  matrix = null;
  const [rows, columns] = labels();
  const view = currentView();
  [state.row, state.column, state.patch] = [Math.min(state.row, rows.length - 1), Math.min(state.column, columns.length - 1), Math.min(state.patch, columns.length - 1)];
  document.querySelector("[data-view=query]").textContent = queryView() ?? "One query";
  at("selection").textContent = `${map().title}${state.heads.length ? ` \u00b7 head ${state.heads.join(", ")}` : map().heads > 1 ? ` \u00b7 mean of ${map().heads} heads` : ""}`;
  markView(document.querySelector(`[data-view=${view}]`));
  at("cell").parentElement.hidden = at("sqrt").parentElement.hidden = view !== "matrix";
  at("words").parentElement.hidden = !axes().some((axis) => axis.words?.length);
  texts.show(axes(), view !== "query");
  const sqrt = at("sqrt").checked = state.sqrt ?? columns.length > LONG;
  const link = { model: state.model, ...textInputs(prediction.inputs), options: optionText(at("options")) };
  at("steps").href = `/steps?${query({ ...link, map: state.map, head: state.heads[0] ?? 0, query: tokenOf(state.row) })}`;
  const stack = state.map.match(/(.+)\.\d+\.(?:self|cross)$/)?.[1];
  at("flow").href = `/flow?${query({ ...link, ...(stack ? { stack } : {}), ...(state.pinned ? { position: tokenOf(state.row) } : {}) })}`;
  compareLink.href = `/compare?${query({ model: state.model, map: state.map, head: state.heads[0] ?? "", ...Object.fromEntries(Object.entries(textInputs(prediction.inputs)).map(([name, value]) => [`a.${name}`, value])) })}`;
  showScale(view, sqrt);
  at("hint").textContent = view === "query" && overGraph() ? "Click a node to see what it attends to; arrow keys go to the next one." : HINTS[view];
  showDownloads();
  strips.show(view === "query" ? [] : axes(), labels());
  at("stage").classList.toggle("stacked", view === "query" && queryView() !== null); // pictures need the width
  search.update();
  ({ matrix: showMatrix, lines: showLines, query: showQuery })[view](rows, columns, done);
};
const showMatrix = (rows, columns, done) => {
  const head = state.heads.at(-1);
  matrix = new PartMatrix(spans(), {
    rows, columns, cell: state.cell, sqrt: at("sqrt").checked,
    selected: [state.row, state.column], pinned: state.pinned,
    fetch: fetchCells(head),
    complete: () => {
      largest(matrix?.largest ?? 1);
      done?.();
      document.body.dataset.drawn = String(performance.now());
    },
    select: (row, column, pinned) => {
      const changed = pinned !== state.pinned || (pinned && (row !== state.row || column !== state.column));
      Object.assign(state, { row, column, pinned });
      const key = column < 0 ? strongest(Float32Array.from(columns, (_, i) => matrix.weight(row, i)), columns) : [[columns[column], matrix.weight(row, column)]];
      showStatus(rows[row], key, pinned);
      if (!changed) return;
      strips.mark();
      updateLink();
      search.update();
    },
  });
  at("view").replaceChildren(matrix.node);
  matrix.layout(); // at once: the browser would report its width with the next frame
  if (state.pinned) matrix.scrollToSelected();
  else at("status").textContent = `${matrix.rows.length} queries (rows), ${matrix.columns.length} keys (columns)`;
};
const showStatus = (row, pairs, pinned, arrow = "\u2190") => {
  const line = [make("b", {}, make("bdi", {}, row)), ` ${arrow} `];
  pairs.forEach(([label, weight], i) => line.push(i ? ", " : "", make("bdi", {}, label), ` ${digits(weight, 4)}`));
  at("status").replaceChildren(...line, pinned ? make("small", {}, "  pinned") : "");
};
const strongest = (weights, columns) => [...weights].map((weight, i) => [columns[i], weight]).filter(([, weight]) => !Number.isNaN(weight)).sort((a, b) => b[1] - a[1]).slice(0, 5);
const showLines = async (rows, columns, done) => {
  const shownNow = ++latest;
  const count = Math.min(SHOWN, Math.max(rows.length, columns.length));
  first = Math.min(first, Math.max(0, Math.max(rows.length, columns.length) - count));
  const [[top, bottom], [left, right]] = spans().map(([begin, end]) => {
    const from = Math.min(Math.max(first, begin), end);
    return [from, Math.max(from, Math.min(first + count, end))];
  });
  const chosen = state.heads.length ? state.heads : [null];
  try {
    const heads = await Promise.all(chosen.map(async (head, i) => ({
      name: head === null ? "mean" : `head ${head}`, colour: colourOf(i), weights: await fetchCells(head)(top, bottom, left, right),
    })));
    if (shownNow !== latest || currentView() !== "lines") return;
    const status = (row) => {
      const weights = heads[0].weights.subarray((row - top) * (right - left), (row - top + 1) * (right - left));
      showStatus(rows[row], strongest(weights, columns.slice(left, right)), state.pinned && row === state.row);
    };
    const draw = (row) => {
      const focus = at("view").querySelector(".lines")?.contains(document.activeElement);
      const picture = lines({
        rows: rows.slice(top, bottom), columns: columns.slice(left, right), heads, selected: row,
        select: (i, pinned) => {
          state.row = top + i;
          if (pinned) {
            Object.assign(state, { column: -1, pinned });
            updateLink();
            strips.mark();
            search.update();
          }
          status(state.row);
          if (row !== i) draw(i);
        },
      });
      at("view").replaceChildren(...pager(Math.max(rows.length, columns.length), count), make("div", { className: "row" }, ...keys(heads)), picture);
      if (focus) (picture.querySelector(".hit.on") ?? picture.querySelector(".hit")).focus({ preventScroll: true });
    };
    draw(state.pinned && state.row >= top && state.row < bottom ? state.row - top : -1);
    if (state.pinned) status(Math.max(top, Math.min(state.row, bottom - 1)));
    else at("status").textContent = `${heads.map((head) => head.name).join(", ")}: hover over a query on the left, or choose one with the arrow keys`;
    largest(1);
    done?.();
  } catch (error) {
    showError(error, "view");
  }
};
const pager = (total, count) => {
  if (total <= count) return [];
  const slider = make("input", { type: "range", min: 0, max: total - count, value: first });
  slider.setAttribute("aria-label", `first ${state.words ? "word" : "token"} shown`);
  slider.onchange = () => {
    first = Number(slider.value);
    render();
  };
  return [slider];
};
const axisSection = (title, view) => make("section", { className: "axis" }, make("h3", {}, title), view);
// The control with the focus keeps it: a view is walked over with the arrow keys.
const controls = () => [...at("view").querySelectorAll("button, select, input, [tabindex]")];
const keepFocus = (...parts) => {
  const focus = controls().indexOf(document.activeElement);
  at("view").replaceChildren(...parts);
  if (focus >= 0) controls()[focus]?.focus({ preventScroll: true });
};
// One query: the weights of its keys, each axis in the view of its class.
const showQuery = async (rows, columns, done) => {
  if (overImage()) return showPicture(rows, columns, done);
  const [queries, keyAxis] = axes();
  const times = overTime() ? timesOf(rows) : [];
  const shownNow = ++latest;
  const select = (i) => {
    stop();
    Object.assign(state, { row: i, column: -1, pinned: true });
    updateLink();
    render();
    if (times[i]) playPart(times[i]);
  };
  try {
    const weights = await fetchCells(state.heads.at(-1))(state.row, state.row + 1, 0, columns.length);
    if (shownNow !== latest || currentView() !== "query") return undefined;
    const most = Math.max(...weights, 1e-6);
    largest(most);
    if (overGraph()) keepFocus(showAxis({ axis: keyAxis, labels: columns, values: weights, largest: most, selected: state.row, select }));
    else {
      const marked = state.pinned && state.column >= 0 ? state.column : weights.indexOf(Math.max(...weights));
      const sections = [
        axisSection(isEpisode() ? "Step" : "Query", showAxis({ axis: queries, labels: rows, selected: state.row, select })),
        axisSection("Keys, by attention weight", showAxis({ axis: keyAxis, labels: columns, values: weights, largest: most, mark: times[state.row], selected: marked })),
      ];
      keepFocus(...(isEpisode() ? sections.reverse() : sections)); // the frame of a step is large
    }
    showStatus(rows[state.row], strongest(weights, columns), true);
    done?.();
  } catch (error) {
    showError(error, "view");
  }
  return undefined;
};
let latest = 0; // of several requests only the last is shown
// Over an image.
const showPicture = async (rows, columns, done) => {
  const [queries, keyAxis] = axes();
  const [head, number] = [state.heads.at(-1), ++latest];
  const change = (values) => {
    stop();
    Object.assign(state, values);
    if ("row" in values) Object.assign(state, { column: -1, pinned: true });
    updateLink();
    render();
  };
  try {
    const view = await pictureView({
      state, rows, columns, queries, keys: keyAxis, fetch: fetchCells(head), change,
      self: map().keys === null, name: [prediction.id, state.map, head, state.words].join(" "),
    });
    if (number !== latest || currentView() !== "query") return;
    keepFocus(...view.parts);
    largest(view.largest);
    showStatus(view.from, strongest(view.values, view.labels), true, view.reverse ? "\u2192" : "\u2190");
    done?.();
  } catch (error) {
    showError(error, "view");
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
const goTo = (row) => {
  const push = currentView() !== "query";
  Object.assign(state, { view: "query", row, column: -1, pinned: true });
  updateLink(push);
  render();
};
const step = (by) => {
  stop();
  goTo(Math.min(Math.max(state.row + by, 0), labels()[0].length - 1));
};
const play = () => {
  if (timer) return stop();
  goTo(state.row + 1 < labels()[0].length ? state.row : 0);
  timer = setInterval(() => {
    if (state.view !== "query" || state.row + 1 >= labels()[0].length) return stop();
    goTo(state.row + 1);
  }, FRAME);
  at("play").textContent = "Pause";
  at("play").setAttribute("aria-pressed", "true");
};

// Downloads of the figure on screen.
const showDownloads = () => {
  const head = state.heads.at(-1) ?? "mean";
  const [queries] = axes();
  const few = (overImage() ? [queries] : axes()).every((axis) => labelsOf(axis).length <= MOST_FRAMES);
  const film = isEpisode() || (queries.kind !== "grid" && (overImage() || axes()[1].kind === "tokens") && few);
  const patch = state.row - (queries.extra?.length ?? 0);
  const chosen = queries.kind === "grid" && patch >= 0 ? { at: `${Math.floor(patch / queries.columns)},${patch % queries.columns}` } : {};
  const drawn = overImage() ? { opacity: style.opacity, smooth: style.smooth ? 1 : 0, ...chosen } : { sqrt: at("sqrt").checked ? 1 : 0 };
  const address = (kind) => `/api/look/${prediction.id}/export.${kind}?${query({ map: state.map, head, words: state.words ? 1 : 0, ...drawn })}`;
  const times = overTime() && queries.kind === "tokens" ? ["TextGrid", "srt"] : [];
  at("export").replaceChildren("Download ", ...["svg", "pdf", "png", ...(film ? ["gif"] : []), "html", "json", ...times].map((kind) =>
    make("a", { href: address(kind), download: `attention.${kind}` }, kind === "TextGrid" ? kind : kind.toUpperCase())));
};

const explanation = explanations({ state, prediction: () => prediction, changed: () => thumbnails.draw(), choose });
const markView = tabs(at("views"), (tab) => {
  stop();
  state.view = tab.dataset.view;
  updateLink(true);
  render();
});
at("words").onchange = () => {
  const words = at("words").checked;
  const change = words ? wordOf : firstToken; // the same query and key
  const [row, column] = axes().map((axis, i) => ([state.row, state.column][i] < 0 ? -1 : change(axis, [state.row, state.column][i])));
  Object.assign(state, { words, row, column });
  updateLink();
  render();
};
at("sqrt").onchange = () => {
  state.sqrt = at("sqrt").checked;
  updateLink();
  render();
};
at("cell").onchange = () => {
  state.cell = Number(at("cell").value);
  render();
};
at("form").onsubmit = submit;
at("generate").onclick = () => {
  location.href = `/generate?${query({ model: at("model").value, ...textInputs(readInputs(at("inputs"))), run: 1 })}`;
};
at("play").onclick = play;
at("previous").onclick = () => step(-1);
at("next").onclick = () => step(1);
addEventListener("heat", () => prediction?.maps.length && showDownloads());
at("model").onchange = () => describeModel();
addEventListener("theme", () => prediction?.maps.length && (render(), thumbnails.draw(), search.draw()));

// A link restores the same view, and so do Back and Forward.
const readState = ({ view, map: name, head, row, column, pin: pinned, patch, to, path, words, sqrt, texts: choice }) => {
  texts.choice = choice ?? "";
  Object.assign(state, { view: ["matrix", "lines", "query"].includes(view) ? view : "", map: name ?? "", pinned: pinned === "1" });
  Object.assign(state, { row: Number(row) || 0, column: pinned === "1" && !column ? -1 : Number(column) || 0 });
  Object.assign(state, { patch: /^\d+$/.test(patch ?? "") ? Number(patch) : -1, to: to === "1", path: path !== "0" });
  state.heads = (head ?? "").split(",").filter((part) => /^\d+$/.test(part)).map(Number);
  state.words = at("words").checked = words !== "0";
  state.sqrt = sqrt ? sqrt === "1" : null;
};
// Returns whether the form has all that the address names.
const fillForm = async (parameters) => {
  await describeModel();
  const given = (at("inputs").fields ?? []).filter((field) => parameters[field.name] !== undefined);
  const complete = await writeInputs(at("inputs"), parameters);
  writeOptions(at("options"), parseOptionText(parameters.options));
  const needsNothing = Boolean(parameters.options) && (at("inputs").fields ?? []).every((field) => field.optional);
  return Boolean((given.length || needsNothing) && complete);
};
const start = async () => {
  const opened = listModels(at("model"), data.models, data.parameters.model);
  readState(data.parameters);
  const complete = opened && await fillForm(data.parameters);
  document.body.dataset.ready = "1";
  if (complete) await submit(null, false);
};
// The predictions shown before are still in the studio, unless many others came after them.
const restore = async ({ state: saved }) => {
  stop();
  const parameters = Object.fromEntries(new URLSearchParams(location.search));
  const opened = listModels(at("model"), data.models, parameters.model);
  if (prediction && saved?.prediction === prediction.id) {
    readState(parameters);
    render(() => explanation.changed());
    return thumbnails.mark();
  }
  const complete = opened && await fillForm(parameters);
  readState(parameters);
  if (!complete) {
    prediction = null;
    at("results").hidden = true;
    at("empty").hidden = false;
    return undefined;
  }
  try {
    Object.assign(state, { model: at("model").value, inputs: readInputs(at("inputs")), ablations: [] });
    if (!saved?.prediction) return await submit(null, false);
    return await show(await request(`/api/look/${saved.prediction}`), false);
  } catch {
    return submit(null, false);
  }
};
addEventListener("popstate", restore);
start();
