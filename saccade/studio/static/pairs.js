// The matrices of a comparison: A, B and their difference over the same aligned positions, which move together.
import { Matrix } from "./matrix.js";
import { divergingColour, drawDiverging, readableOn } from "./diverging.js";
import { dark, decodeWeights, drawPixels, query, ramp, request } from "./studio.js";

const SMALLEST = 6; // pixels of a cell: smaller ones would be thinned out, and the matrix scrolls instead
const [WIDE, LARGEST] = [28, 40]; // pixels: where there is room, cells are wider than those of Look
const FAINT = 0.04; // of the largest: smaller weights have no number, only a colour
const NUMBERS = 24; // pixels of a cell that has room for a number
export const GAP = "\u2013"; // in place of the label of a position that only the other one has
const [A, B, DIFFERENCE] = [0, 1, 2];

// The largest weight and the largest difference, of all that was fetched: the same colours in A and in B.
class Scale {
  constructor(changed) {
    Object.assign(this, { changed, weight: 0.05, difference: 0.01 });
  }

  add({ a, b }) {
    let { weight, difference } = this;
    for (let i = 0; i < a.length; i++) {
      weight = Math.max(weight, a[i], b[i]);
      difference = Math.max(difference, Math.abs(b[i] - a[i]));
    }
    Object.assign(this, { weight, difference });
    this.changed();
  }
}

class PairMatrix extends Matrix {
  // side: which of the three. gaps: whether each row and each column is missing in this matrix.
  constructor({ side, gaps, scale, ...parameters }) {
    super(parameters);
    Object.assign(this, { side, gaps, scale });
  }

  measure() {} // the scale is that of both

  get strongest() {
    return this.side === DIFFERENCE ? this.scale.difference : this.scale.weight;
  }

  paint(block) {
    const shade = `${this.strongest} ${dark()}`;
    if (block.shade === shade) return;
    block.picture ??= document.createElement("canvas");
    if (this.side === DIFFERENCE) drawDiverging(block.picture, block.values, block.width, this.strongest);
    else drawPixels(block.picture, block.values, block.width, 255 / this.strongest);
    block.shade = shade;
  }

  // Hatch the gaps, and write the weights on cells that have room for them.
  decorate(pen, style, [r0, r1, c0, c1], left, top) {
    const { cell } = this;
    pen.fillStyle = hatching(pen, style);
    for (let r = r0; r < r1; r++) if (this.gaps[0][r]) pen.fillRect(left, top + r * cell, this.columnCount * cell, cell);
    for (let c = c0; c < c1; c++) if (this.gaps[1][c]) pen.fillRect(left + c * cell, top, cell, this.rowCount * cell);
    if (cell < NUMBERS) return;
    const colours = this.side === DIFFERENCE ? null : ramp();
    pen.font = `${Math.min(12, cell * 0.36)}px system-ui, sans-serif`;
    [pen.textAlign, pen.textBaseline] = ["center", "middle"];
    for (let r = r0; r < r1; r++) {
      for (let c = c0; c < c1; c++) {
        const value = this.weight(r, c);
        if (this.gaps[0][r] || this.gaps[1][c] || !(Math.abs(value) >= Math.max(0.005, this.strongest * FAINT))) continue;
        const fraction = value / this.strongest;
        const level = 4 * Math.round(255 * Math.min(1, Math.max(0, fraction)));
        pen.fillStyle = readableOn(colours ? [...colours.slice(level, level + 3)] : divergingColour(fraction));
        const digits = Math.abs(value).toFixed(2).replace(/^0/, "");
        pen.fillText(colours ? digits : (value < 0 ? "\u2212" : "+") + digits, left + (c + 0.5) * cell, top + (r + 0.5) * cell);
      }
    }
  }
}
const hatching = (pen, style) => {
  const tile = document.createElement("canvas");
  [tile.width, tile.height] = [6, 6];
  const ink = tile.getContext("2d");
  ink.fillStyle = style.getPropertyValue("--panel");
  ink.fillRect(0, 0, 6, 6);
  ink.strokeStyle = style.getPropertyValue("--border");
  ink.beginPath();
  for (const at of [-6, 0, 6]) {
    ink.moveTo(at, 6);
    ink.lineTo(at + 6, 0);
  }
  ink.stroke();
  return pen.createPattern(tile, "repeat");
};

// The name of an aligned position: "tired / wide" where its labels differ.
export const pairName = ([a, b]) => (a?.toLowerCase() === b?.toLowerCase() ? a : `${a ?? GAP} / ${b ?? GAP}`);
const labelsOf = (pairs, side) => pairs.map(([a, b]) => {
  if (side < DIFFERENCE) return [a, b][side] ?? GAP;
  return a === null || b === null ? a ?? b : pairName([a, b]);
});
const gapsOf = (pairs, side) => pairs.map((pair) => (side < DIFFERENCE ? pair[side] === null : pair.includes(null)));

// shown: { first, second (predictions), map, head, other, otherHead, words }. axes: { queries, keys }, pairs of labels.
// places: an element for each matrix. select(row, column, pinned) and scaled(scale) tell what is selected and the scale.
export const showPairs = ({ shown, axes, places, selected, pinned, select, scaled, drawn }) => {
  const parts = new Map(); // promises of the weights of a rectangle in A and B
  const scale = new Scale(() => {
    scaled(scale);
    for (const matrix of matrices) matrix.draw();
  });
  const { first, second, map, other, words } = shown;
  const [head, otherHead] = [shown.head ?? "mean", shown.otherHead ?? "mean"];
  const fetchBoth = (top, bottom, left, right) => {
    const parameters = query({ map, other, head, other_head: otherHead, words: words ? 1 : 0, top, bottom, left, right });
    if (!parts.has(parameters)) {
      const part = request(`/api/compare/${first}/${second}/cells?${parameters}`).then((buffer) => {
        const weights = decodeWeights(buffer);
        const both = { a: weights.subarray(0, weights.length / 2), b: weights.subarray(weights.length / 2) };
        scale.add(both);
        return both;
      });
      part.catch(() => parts.delete(parameters));
      parts.set(parameters, part);
    }
    return parts.get(parameters);
  };
  const valuesOf = ({ a, b }, side) => (side === A ? a : side === B ? b : a.map((value, i) => b[i] - value));
  const values = (row, column) => matrices.map((matrix) => matrix.weight(row, column));
  const move = (from) => (row, column, pin) => {
    for (const matrix of matrices) {
      if (matrix === matrices[from]) continue;
      Object.assign(matrix, { selected: [row, column], pinned: pin });
      matrix.draw();
    }
    select(row, column, pin, values(row, column));
  };
  const matrices = [A, B, DIFFERENCE].map((side) => {
    const [rows, columns] = [labelsOf(axes.queries, side), labelsOf(axes.keys, side)];
    const fit = ((places[side].clientWidth || 300) - 200) / columns.length; // beside the labels
    return new PairMatrix({
      side, scale, rows, columns, selected, pinned, sqrt: false, select: move(side),
      gaps: [gapsOf(axes.queries, side), gapsOf(axes.keys, side)],
      cell: fit < SMALLEST ? SMALLEST : fit > WIDE ? Math.floor(Math.min(fit, LARGEST)) : 0,
      fetch: async (...part) => valuesOf(await fetchBoth(...part), side),
      complete: () => side === DIFFERENCE && drawn(),
    });
  });
  matrices.forEach((matrix, side) => {
    matrix.node.addEventListener("scroll", () => follow(matrix, matrices));
    places[side].replaceChildren(matrix.node);
    matrix.layout();
    if (pinned) matrix.scrollToSelected();
  });
  return { close: () => matrices.forEach((matrix) => matrix.close()), pin: (row, column) => matrices[DIFFERENCE].pin(row, column, true) };
};
// Scroll the others to the same cell.
const follow = (leader, matrices) => {
  for (const matrix of matrices) {
    if (matrix === leader) continue;
    for (const name of ["scrollLeft", "scrollTop"]) {
      const target = (leader.node[name] / leader.cell) * matrix.cell;
      if (Math.abs(matrix.node[name] - target) > matrix.cell) matrix.node[name] = target;
    }
  }
};
