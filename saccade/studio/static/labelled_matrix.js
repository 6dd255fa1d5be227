// A small matrix with labelled axes: queries as rows, keys as columns; its values are read with pointer or arrow keys.
import { digits, drawPixels, make } from "./studio.js";

const FONTS = [12, 14]; // of a matrix beside others, and of one alone
const LONGEST = 110; // pixels of a label
const [SMALL, MIDDLE, LARGE] = [190, 320, 620]; // pixels of one of many matrices, of one of a few, and of one alone
const CELL = 44; // pixels of the largest cell
const pen = make("canvas", {}).getContext("2d");

const shorten = (text) => {
  let short = text;
  while (short.length > 1 && pen.measureText(short).width > LONGEST) short = [...short].slice(0, -2).join("");
  return short === text ? text : `${short}\u2026`;
};

// weights: row by row, 0 to 1; colour(weight): 0 to 1; count: of matrices side by side; selected: row and column, or null.
// read(text, row, column) is called with the weight that is selected, also at first.
export const labelledMatrix = ({ queries, keys, weights, colour, count, name, selected, read }) => {
  const alone = count === 1;
  const font = FONTS[Number(alone)];
  pen.font = `${font}px system-ui, sans-serif`;
  const [rows, columns] = [queries.map(shorten), keys.map(shorten)];
  const widest = (labels) => Math.max(...labels.map((text) => pen.measureText(text).width));
  const beside = 1.5 * Math.max(widest(rows), widest(columns)) + 70; // of labels
  const free = document.getElementById("heads").clientWidth / count - beside;
  const room = Math.min(alone ? LARGE : MIDDLE, Math.max(SMALL, free));
  const cell = Math.max(3, Math.min(CELL, Math.floor(room / Math.max(rows.length, columns.length))));
  const [left, top] = [Math.ceil(widest(rows)) + 26, Math.ceil(widest(columns) * 0.87) + 30];
  const [across, down] = [columns.length * cell, rows.length * cell];
  const [width, height] = [left + across + Math.ceil(widest(columns) * 0.5) + 14, top + down + 4];
  const node = make("canvas", { className: "labelled", tabIndex: 0 });
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", `${name}: ${rows.length} queries, ${columns.length} keys; the arrow keys read weights`);
  const ratio = devicePixelRatio || 1;
  Object.assign(node, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  Object.assign(node.style, { width: `${width}px`, height: `${height}px` });
  const picture = make("canvas", {});
  drawPixels(picture, Array.from(weights, colour), columns.length);
  let at = null; // row and column whose weight is read

  const draw = () => {
    const context = node.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, left, top, across, down);
    context.strokeStyle = style.getPropertyValue("--border");
    context.strokeRect(left - 0.5, top - 0.5, across + 1, down + 1);
    context.fillStyle = style.getPropertyValue("--text");
    context.font = `${font}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil((font + 1) / cell)); // labels that would overlap are skipped
    context.textAlign = "end";
    for (let row = 0; row < rows.length; row += every) context.fillText(rows[row], left - 5, top + (row + 0.5) * cell);
    context.textAlign = "start";
    for (let column = 0; column < columns.length; column += every) {
      context.save();
      context.translate(left + (column + 0.5) * cell, top - 5);
      context.rotate(-Math.PI / 3);
      context.fillText(columns[column], 0, 0);
      context.restore();
    }
    context.fillStyle = style.getPropertyValue("--soft");
    context.textAlign = "center";
    context.fillText("keys", left + across / 2, 8);
    context.save();
    context.translate(8, top + down / 2);
    context.rotate(-Math.PI / 2);
    context.fillText("queries", 0, 0);
    context.restore();
    if (!at) return;
    for (const [colourName, thick] of [["--cross-light", 4], ["--cross-dark", 2]]) {
      context.strokeStyle = style.getPropertyValue(colourName);
      context.lineWidth = thick;
      context.strokeRect(left + at[1] * cell, top + at[0] * cell, cell, cell);
    }
    context.lineWidth = 1;
  };
  const move = (row, column) => {
    if (row < 0 || column < 0 || row >= rows.length || column >= columns.length) return;
    at = [row, column];
    draw();
    read(`${queries[row]} \u2190 ${keys[column]}  ${digits(weights[row * keys.length + column])}  \u00b7 ${name}`, row, column);
  };
  node.onpointermove = node.onpointerdown = (event) => {
    const box = node.getBoundingClientRect();
    move(Math.floor((event.clientY - box.top - top) / cell), Math.floor((event.clientX - box.left - left) / cell));
  };
  node.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    if (at) move(at[0] + step[0], at[1] + step[1]);
    else move(0, 0);
  };
  draw();
  if (selected) move(...selected);
  return node;
};
