// Vectors as bars and matrices as small heat maps: every number under the pointer or the arrow keys, some can be edited.
import { make, number, thousands } from "./studio.js";

const COPIED = 1500; // milliseconds
const [BARS, MOST, LEAST] = [48, 17, 2]; // pixels: height of bars, of the tallest and the lowest row of a heat map
const TALL = 280; // pixels of a heat map without labels
const grids = new Set();

export const norm = (values) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
// A matrix as the studio sends it: 32-bit numbers in base64.
export const unpack = ({ shape: [rows, columns], data }) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return { rows, columns, values: new Float32Array(bytes.buffer) };
};
export const rowsOf = ({ rows, columns, values }) => Array.from({ length: rows }, (_, i) => values.subarray(i * columns, (i + 1) * columns));

const parse = (colour) => {
  const digits = colour.trim().slice(1);
  const wide = digits.length === 3 ? [...digits].map((digit) => digit + digit).join("") : digits;
  return [0, 2, 4].map((at) => parseInt(wide.slice(at, at + 2), 16));
};
const palette = () => {
  const style = getComputedStyle(document.documentElement);
  return ["--paper", "--ink", "--b", "--border"].map((name) => parse(style.getPropertyValue(name)));
};
const paintBars = (canvas, values, [, ink, negative, line]) => {
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.max(1, Math.round((canvas.clientWidth || 600) * ratio)), BARS * ratio];
  const pen = canvas.getContext("2d");
  const largest = Math.max(...values.map(Math.abs), 1e-12);
  const [middle, wide] = [canvas.height / 2, canvas.width / values.length];
  values.forEach((value, i) => {
    pen.fillStyle = `rgb(${(value < 0 ? negative : ink).join(" ")})`;
    pen.fillRect(i * wide, middle, Math.max(1, wide - (wide > 4 ? 1 : 0)), (-value / largest) * (middle - 1));
  });
  pen.fillStyle = `rgb(${line.join(" ")})`;
  pen.fillRect(0, middle, canvas.width, 1);
};
const paintCells = (canvas, rows, [paper, ink, negative]) => {
  [canvas.width, canvas.height] = [Math.max(1, rows[0]?.length ?? 1), Math.max(1, rows.length)];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  let largest = 1e-12;
  for (const row of rows) for (const value of row) largest = Math.max(largest, Math.abs(value));
  let at = 0;
  for (const row of rows) {
    for (const value of row) {
      const [end, share] = [value < 0 ? negative : ink, Math.sqrt(Math.abs(value) / largest)];
      for (let c = 0; c < 3; c++) image.data[at++] = paper[c] + (end[c] - paper[c]) * share;
      image.data[at++] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
};
const copyButton = (get) => {
  const button = make("button", { type: "button", className: "copy" }, "Copy");
  const tell = (text) => {
    button.textContent = text;
    setTimeout(() => { button.textContent = "Copy"; }, COPIED);
  };
  button.onclick = () => {
    const rows = get().map((row) => Array.from(row));
    navigator.clipboard.writeText(JSON.stringify(rows.length === 1 ? rows[0] : rows)).then(() => tell("Copied"), () => tell("The browser refused"));
  };
  return button;
};
const describe = (name, rows) => {
  const count = rows[0]?.length ?? 0;
  if (rows.length > 1) return `${name} \u00b7 ${thousands(rows.length)} \u00d7 ${thousands(count)}`;
  return `${name} \u00b7 ${thousands(count)} number${count === 1 ? "" : "s"} \u00b7 norm ${number(norm(Array.from(rows[0] ?? [])), 4)}`;
};

// get: returns the rows; labels: of the rows; edit(row, column, value): makes the numbers editable; mark: a row or a span
// of columns to point out. The figure has update(), which shows the numbers again.
export const numberGrid = (name, get, { labels = null, edit = null, bars = false, mark = null } = {}) => {
  const canvas = make("canvas", { tabIndex: 0, className: bars ? "bars" : "cells" });
  const caption = make("span", {});
  const readout = make("output", { className: "readout" });
  const cursor = make("i", { className: "cursor", hidden: true });
  const frame = make("div", { className: "frame" }, canvas, cursor);
  const entry = make("input", { type: "number", step: "any", hidden: true });
  const place = { row: 0, column: 0 };
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", bars ? "bars" : "heat map");
  const placeName = () => `${name}${labels ? ` of ${labels[place.row]}` : get().length > 1 ? ` row ${place.row}` : ""} [${place.column}]`;
  const show = () => {
    const rows = get();
    const value = rows[place.row]?.[place.column];
    if (value === undefined) return;
    cursor.hidden = false;
    const [high, wide] = [100 / rows.length, 100 / rows[0].length];
    Object.assign(cursor.style, { left: `${place.column * wide}%`, width: `max(3px, ${wide}%)`, top: `${place.row * high}%`, height: `${high}%` });
    readout.replaceChildren(make("bdi", {}, placeName()), ` = ${number(value, 4)}`);
    if (edit) entry.setAttribute("aria-label", placeName());
    if (edit && document.activeElement !== entry) entry.value = Number(value.toPrecision(6));
  };
  const moveTo = (row, column) => {
    const rows = get();
    place.row = Math.min(rows.length - 1, Math.max(0, row));
    place.column = Math.min(rows[0].length - 1, Math.max(0, column));
    show();
  };
  const point = ({ offsetX, offsetY }) => {
    const rows = get();
    moveTo(Math.floor((offsetY / canvas.clientHeight) * rows.length), Math.floor((offsetX / canvas.clientWidth) * rows[0].length));
  };
  canvas.onpointermove = (event) => entry.hidden && point(event);
  canvas.onfocus = show;
  canvas.onclick = (event) => {
    point(event);
    if (!edit) return;
    entry.hidden = false;
    show();
    entry.select();
    entry.focus();
  };
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step) moveTo(place.row + step[0], place.column + step[1]);
    else if (event.key === "Enter" && edit) {
      entry.hidden = false;
      show();
      entry.focus();
    } else return;
    event.preventDefault();
  };
  entry.onchange = () => entry.value !== "" && Number.isFinite(Number(entry.value)) && edit(place.row, place.column, Number(entry.value));
  entry.onkeydown = (event) => {
    if (event.key === "Escape") entry.value = get()[place.row][place.column];
    if (event.key === "Escape" || event.key === "Enter") canvas.focus(); // the number is taken when its field is left
  };
  entry.onblur = () => { entry.hidden = true; };
  const names = labels ? make("div", { className: "labels" }, ...labels.map((label) => make("bdi", {}, label))) : "";
  const figure = make("figure", { className: `numbers${labels ? " labelled" : ""}` },
    make("figcaption", {}, caption, edit ? make("small", {}, "editable") : "", copyButton(get)),
    make("div", { className: "body" }, names, frame), make("div", { className: "values" }, readout, entry));
  figure.update = () => {
    const rows = get();
    caption.textContent = describe(name, rows);
    canvas.setAttribute("aria-label", `${describe(name, rows)}. Arrow keys read its numbers${edit ? ", Enter edits one" : ""}.`);
    if (bars) paintBars(canvas, Array.from(rows[0]), palette());
    else {
      paintCells(canvas, rows, palette());
      const high = labels ? MOST : Math.min(MOST, Math.max(LEAST, TALL / rows.length));
      canvas.style.height = `${Math.round(high * rows.length)}px`;
    }
    if (!cursor.hidden) show();
  };
  if (mark) frame.append(marker(mark));
  grids.add(figure);
  figure.update();
  return figure;
};
// A part of a matrix, in fractions of it.
const marker = ({ left = 0, right = 1, top = 0, bottom = 1 }) => {
  const box = make("i", { className: "part" });
  Object.assign(box.style, { left: `${100 * left}%`, width: `${100 * (right - left)}%`, top: `${100 * top}%`, height: `${100 * (bottom - top)}%` });
  return box;
};
export const vectorBars = (name, get, edit = null) => numberGrid(name, () => [get()], { bars: true, edit: edit && ((_, column, value) => edit(column, value)) });

const again = () => {
  for (const figure of grids) {
    if (figure.isConnected) figure.update();
    else grids.delete(figure);
  }
};
addEventListener("theme", again);
let waiting = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(again);
});
