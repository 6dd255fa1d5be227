// Two texts in one sequence, such as the pairs of BERT: only the queries of one and the keys of one are shown.
import { Matrix } from "./matrix.js";
import { make } from "./studio.js";

const CHOICES = { "": "A and B", aa: "A \u2192 A", ab: "A \u2192 B", ba: "B \u2192 A", bb: "B \u2192 B" };

// A control behind `place`, which is hidden where there is one text. change(): another choice.
export const textFilter = (place, change) => {
  const select = make("select", { id: "texts" }, ...Object.entries(CHOICES).map(([value, text]) => new Option(text, value)));
  const label = make("label", { title: "A: the first text with its special tokens, B: the second. Rows are queries, columns keys.", hidden: true }, "Texts ", select);
  place.after(label);
  select.onchange = change;
  const span = (axis, size, start, side) => (!side || !axis.second ? [0, size] : side === "a" ? [0, start] : [start, size]);
  return {
    get choice() { return label.hidden ? "" : select.value; },
    set choice(value) { select.value = value in CHOICES ? value : ""; },
    show: (axes, visible) => { label.hidden = !visible || !axes.some((axis) => axis.second); },
    // The first and the last row, and the first and the last column: [[top, bottom], [left, right]].
    spans(axes, labels, positionOf) {
      return axes.map((axis, i) => span(axis, labels[i].length, axis.second ? positionOf(axis, axis.second) : 0, this.choice[i]));
    },
  };
};

// A part of a matrix; rows and columns are counted as in the whole one.
export class PartMatrix extends Matrix {
  constructor([[top, bottom], [left, right]], { rows, columns, selected: [row, column], fetch, select, ...parameters }) {
    super({
      ...parameters, rows: rows.slice(top, bottom), columns: columns.slice(left, right),
      selected: [row - top, column < 0 ? -1 : column - left], // outside of the part it is not marked
      fetch: (first, last, start, end, step) => fetch(first + top, last + top, start + left, end + left, step),
      select: (i, j, pinned) => select(i + top, j < 0 ? -1 : j + left, pinned),
    });
    this.offset = [top, left];
  }

  weight(row, column) {
    const [i, j] = [row - this.offset[0], column - this.offset[1]];
    return i >= 0 && j >= 0 && i < this.rows.length && j < this.columns.length ? super.weight(i, j) : NaN;
  }

  pin(row, column, pinned) {
    super.pin(row - this.offset[0], column < 0 ? -1 : column - this.offset[1], pinned);
  }
}
