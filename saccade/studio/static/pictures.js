// The picture view: attention over an image, of a word or of a patch of the image itself.
import { gazeOf, heatControls } from "./heat.js";
import { make } from "./studio.js";
import { showAxis } from "./views.js";

const WHOLE = 1 << 20; // weights of a map that is fetched at once, so that a film does not wait
const SIDE = 26; // rem of a square picture
const section = (title, ...parts) => make("section", { className: "axis" }, make("h3", {}, title), ...parts);
const peak = (values) => values.reduce((largest, value) => Math.max(largest, value), 1e-6);

// Fetches weights, and keeps the last few answers.
const kept = new Map();
const remember = async (name, fetch) => {
  if (!kept.has(name)) {
    const weights = await fetch();
    if (kept.size > 15) kept.delete(kept.keys().next().value);
    kept.set(name, weights);
  }
  return kept.get(name);
};

// The weights of a row or of a column of a map, from all of it if it is small enough.
const reader = (name, rows, columns, fetch) => {
  const whole = rows * columns <= WHOLE ? () => remember(`${name} all`, () => fetch(0, rows, 0, columns)) : null;
  return {
    whole,
    row: async (i) => (whole ? (await whole()).subarray(i * columns, (i + 1) * columns) : remember(`${name} row ${i}`, () => fetch(i, i + 1, 0, columns))),
    column: async (j) => {
      if (!whole) return remember(`${name} column ${j}`, () => fetch(0, rows, j, j + 1));
      const weights = await whole();
      return Float32Array.from({ length: rows }, (_, i) => weights[i * columns + j]);
    },
  };
};

// Self-attention over an image: one picture, on which a patch is chosen; `state.to` turns the direction round.
const patchView = async ({ state, rows, queries, read, change }) => {
  const weights = state.to ? await read.column(state.row) : await read.row(state.row);
  const direction = make("select", { id: "direction" }, new Option("attends to", ""), new Option("is attended by", "1"));
  direction.value = state.to ? "1" : "";
  direction.onchange = () => change({ to: direction.value === "1" });
  const largest = peak(weights.subarray(queries.extra.length)); // a position before the grid may have most of the weight
  const picture = showAxis({ axis: queries, labels: rows, values: weights, largest, selected: state.row, select: (row) => change({ row }), side: SIDE });
  const controls = make("div", { className: "row" }, make("label", {}, "The selected patch ", direction), ...heatControls());
  return { parts: [controls, section("Click a patch, or move with the arrow keys", picture)], values: weights, labels: rows, largest, from: rows[state.row], reverse: state.to };
};

// Words over an image: a word shows where it looks, a patch which words look at it; gazes so far are a path.
// Steps of an episode each have an image of their own.
const wordView = async ({ state, rows, columns, queries, keys: grid, read, change }) => {
  const keys = queries.frames ? { ...grid, image: queries.frames[state.row] } : grid;
  const weights = await read.row(state.row);
  const first = keys.extra.length;
  const all = read.whole && state.path ? await read.whole() : null;
  const earliest = queries.frames ? state.row : 0; // a gaze at another frame would be nowhere in this one
  const path = all ? Array.from({ length: state.row + 1 - earliest }, (_, at) => earliest + at).map((i) => gazeOf(all.subarray(i * columns.length + first, (i + 1) * columns.length), keys)) : [];
  const ofPatch = state.patch >= 0 ? await read.column(state.patch) : null;
  const box = make("input", { type: "checkbox", checked: state.path, id: "path" });
  box.onchange = () => change({ path: box.checked });
  const largest = peak(weights.subarray(first));
  const words = showAxis({ axis: { ...queries, frames: null }, labels: rows, values: ofPatch, largest: ofPatch ? peak(ofPatch) : 1, selected: state.row, select: (row) => change({ row }) });
  const picture = showAxis({
    axis: keys, labels: columns, values: weights, largest, selected: state.patch, path, side: SIDE,
    select: (patch) => change({ patch: patch === state.patch ? -1 : patch }),
  });
  const controls = make("div", { className: "row" }, make("label", {}, box, " Path of the gaze"), ...heatControls());
  const title = ofPatch ? `Queries, by their weight on patch ${columns[state.patch]}` : "Queries";
  return { parts: [controls, section(title, words), section("Where the selected query looks; click a patch to see which queries look at it", picture)], values: weights, labels: columns, largest, from: rows[state.row], reverse: false };
};

// name: of the map and head. self: whether queries and keys are the same grid. change(values): of the state.
export const pictureView = (view) => {
  const { name, rows, columns, fetch, self } = view;
  const read = reader(name, rows.length, columns.length, fetch);
  return (self ? patchView : wordView)({ ...view, read });
};
