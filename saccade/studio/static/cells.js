// The weights of a map: those of a small map are fetched once for all heads, so that switching heads asks for nothing.
import { decodeWeights, query, request } from "./studio.js";

const SMALL = 1 << 17; // weights of all heads of a map
const KEPT = 64; // maps
const maps = new Map(); // promises of the weights of every head and of their mean, by prediction and map

const fetchMap = ({ id, map, rows, columns, words }) => {
  const key = [id, map, words].join(" ");
  if (!maps.has(key)) {
    if (maps.size >= KEPT) maps.delete(maps.keys().next().value);
    const parameters = { map, head: "all", top: 0, bottom: rows, left: 0, right: columns, words: words ? 1 : 0 };
    const weights = request(`/api/look/${id}/cells?${query(parameters)}`).then(decodeWeights);
    weights.catch(() => maps.delete(key));
    maps.set(key, weights);
  }
  return maps.get(key);
};

// shown: { id, map, heads, rows, columns, words }. Returns fetch(top, bottom, left, right, step) of a head, null for the mean.
export const cellsOf = (shown, head) => async (top, bottom, left, right, step = 1) => {
  const { id, map, heads, rows, columns, words } = shown;
  if (step > 1 || rows * columns * (heads + 1) > SMALL) {
    const parameters = { map, head: head ?? "mean", top, bottom, left, right, down: step, across: step, words: words ? 1 : 0 };
    return decodeWeights(await request(`/api/look/${id}/cells?${query(parameters)}`));
  }
  const first = (head ?? heads) * rows * columns;
  const weights = (await fetchMap(shown)).subarray(first, first + rows * columns);
  if (left === 0 && right === columns) return weights.slice(top * columns, bottom * columns);
  const part = new Float32Array((bottom - top) * (right - left));
  for (let row = top; row < bottom; row++) part.set(weights.subarray(row * columns + left, row * columns + right), (row - top) * (right - left));
  return part;
};
