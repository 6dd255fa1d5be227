"use strict";
// Lines from queries (left) to keys (right), each as opaque as its part of the largest weight; faint ones are left out.
const drawLines = ({ shape, rows, columns, weights, largest, shorten, listen, select }) => {
  const [STEP, LEFT, RIGHT, WIDTH, LEAST, FAINT] = [26, 190, 430, 620, 0.02, 0.04];
  const height = STEP * Math.max(rows.length, columns.length);
  const y = (index, count) => (index + 0.5) * STEP + (height - STEP * count) / 2;
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, "font-size": 14, role: "img", "aria-label": `${rows.length} queries, ${columns.length} keys` });
  const lines = [];
  weights.forEach((value, i) => {
    const weight = largest > 0 ? value / largest : 0;
    if (weight < LEAST) return;
    const [row, column] = [Math.floor(i / columns.length), i % columns.length];
    const line = shape("line", { x1: LEFT, x2: RIGHT, y1: y(row, rows.length), y2: y(column, columns.length), "stroke-opacity": weight });
    lines.push([line, row, column, weight]);
    picture.append(line);
  });
  const side = (labels, x, anchor, of) => labels.map((label, i) => {
    const at = y(i, labels.length);
    const node = shape("g", { "data-side": anchor });
    node.append(shape("rect", { x: anchor === "end" ? 0 : RIGHT, y: at - STEP / 2, width: LEFT, height: STEP }),
      shape("text", { x, y: at, "text-anchor": anchor }, shorten(label)), shape("title", {}, label));
    listen(node, () => select(...of(i)));
    picture.append(node);
    return node;
  });
  const queries = side(rows, LEFT - 8, "end", (i) => [i, -1]);
  const keys = side(columns, RIGHT + 8, "start", (i) => [-1, i]);
  const update = (row, column) => {
    for (const [line, r, c, weight] of lines) {
      line.setAttribute("stroke-opacity", (row < 0 ? column < 0 || c === column : r === row) ? weight : FAINT);
    }
    queries.forEach((node, i) => node.classList.toggle("on", i === row));
    keys.forEach((node, i) => node.classList.toggle("on", i === column));
  };
  return { picture, update };
};
