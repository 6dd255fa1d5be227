// Heat maps over an image: how they are drawn, alike on every page, and the controls for it.
import { make } from "./studio.js";

const HEAT = [[204, 24, 48], [255, 214, 64]]; // colours of a small value and of the largest, as in files
const NEGATIVE = [[26, 86, 196], [120, 200, 255]];
const PIXELS = 512; // of the longer side of a smooth heat map
const SMALL = 96; // pixels: an image that is smaller is enlarged without smoothing
const THUMBNAIL = 88; // pixels

export const style = { opacity: 70, smooth: true, ...JSON.parse(localStorage.getItem("heat") ?? "{}") };
const change = (name, value) => {
  style[name] = value;
  localStorage.setItem("heat", JSON.stringify(style));
  for (const canvas of document.querySelectorAll("canvas.heat")) canvas.repaint();
  dispatchEvent(new Event("heat"));
};
// Opacity, and smooth or blocks.
export const heatControls = () => {
  const opacity = make("input", { type: "range", min: 0, max: 100, value: style.opacity, className: "opacity" });
  opacity.oninput = () => change("opacity", Number(opacity.value));
  const smooth = make("input", { type: "checkbox", checked: style.smooth, className: "smooth" });
  smooth.onchange = () => change("smooth", smooth.checked);
  return [make("label", { className: "slider" }, "Opacity ", opacity), make("label", {}, smooth, " Smooth")];
};
// The colours from 0 to the largest value, for a legend.
export const drawHeatScale = (canvas) => {
  [canvas.width, canvas.height] = [64, 1];
  canvas.getContext("2d").putImageData(heatImage(Float32Array.from({ length: 64 }, (_, i) => i / 63), 64, 1, 1, 255), 0, 0);
};

// All maps of a prediction lie over the same images, which are sent once.
export const withImages = (maps, images = []) => {
  for (const axis of maps.flatMap((map) => [map.queries, map.keys])) {
    if (typeof axis?.image === "number") axis.image = images[axis.image];
    if (axis?.frames) axis.frames = axis.frames.map((frame) => (typeof frame === "number" ? images[frame] : frame));
  }
  return maps;
};
export const aspectOf = ({ size, rows, columns }) => (size ? size[0] / size[1] : columns / rows);
export const isSmall = (size) => Math.max(...size) < SMALL;

// Bicubic interpolation between cells.
const cubic = (distance) => {
  const [x, a] = [Math.abs(distance), -0.75];
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
};
// Stretch rows of `columns` values by a factor, and return columns as rows: twice gives both directions.
const stretch = (values, columns, factor) => {
  const rows = values.length / columns;
  const result = new Float32Array(values.length * factor);
  for (let x = 0; x < columns * factor; x++) {
    const centre = (x + 0.5) / factor - 0.5;
    const low = Math.floor(centre);
    for (let tap = low - 1; tap <= low + 2; tap++) {
      const [column, share] = [Math.min(Math.max(tap, 0), columns - 1), cubic(centre - tap)];
      for (let row = 0; row < rows; row++) result[x * rows + row] += share * values[row * columns + column];
    }
  }
  return result;
};

// Draw one value per cell, as strong as its part of the largest; again whenever the style changes.
export const paintHeat = (canvas, cells, axis, largest) => {
  canvas.repaint = () => {
    const factor = style.smooth ? Math.max(1, Math.min(16, Math.floor(PIXELS / Math.max(axis.rows, axis.columns)))) : 1;
    const values = factor > 1 ? stretch(stretch(cells, axis.columns, factor), axis.rows, factor) : cells;
    [canvas.width, canvas.height] = [Math.max(1, axis.columns * factor), Math.max(1, axis.rows * factor)];
    canvas.classList.toggle("coarse", factor === 1);
    canvas.getContext("2d").putImageData(heatImage(values, canvas.width, canvas.height, largest, (255 * style.opacity) / 100), 0, 0);
  };
  canvas.repaint();
};
const heatImage = (values, width, height, largest, opacity) => {
  const image = new ImageData(width, height);
  for (let i = 0; i < values.length; i++) {
    const [low, high] = values[i] < 0 ? NEGATIVE : HEAT;
    const fraction = Math.min(1, Math.abs(values[i]) / largest);
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = low[c] + (high[c] - low[c]) * fraction;
    image.data[4 * i + 3] = opacity * fraction;
  }
  return image;
};

// A head in small, over the image.
const pictures = new Map(); // elements by address
export const drawThumbnail = (canvas, cells, axis) => {
  const [wide, high] = aspectOf(axis) > 1 ? [THUMBNAIL, THUMBNAIL / aspectOf(axis)] : [THUMBNAIL * aspectOf(axis), THUMBNAIL];
  [canvas.width, canvas.height] = [Math.max(8, wide), Math.max(8, high)];
  Object.assign(canvas.style, { width: `${canvas.width / 2}px`, height: `${canvas.height / 2}px`, imageRendering: "auto" });
  const pen = canvas.getContext("2d");
  const small = make("canvas", { width: axis.columns, height: axis.rows });
  small.getContext("2d").putImageData(heatImage(cells, axis.columns, axis.rows, 255, 200), 0, 0);
  const draw = (picture) => {
    pen.imageSmoothingEnabled = Boolean(picture) && !isSmall(axis.size);
    if (picture) pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = style.smooth;
    pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  };
  if (!axis.image) return draw(null);
  if (!pictures.has(axis.image)) {
    pictures.clear(); // of the prediction before
    pictures.set(axis.image, make("img", { src: axis.image }));
  }
  const picture = pictures.get(axis.image);
  return picture.complete ? draw(picture) : picture.addEventListener("load", () => draw(picture), { once: true });
};

// The point (x, y) that a query looks at: the centre of mass of the largest weight and its neighbours.
export const gazeOf = (cells, { rows, columns }) => {
  const best = cells.indexOf(cells.reduce((largest, value) => Math.max(largest, value), 0));
  const [row, column] = [Math.floor(best / columns), best % columns];
  let [total, x, y] = [0, 0, 0];
  for (let r = Math.max(0, row - 1); r <= Math.min(rows - 1, row + 1); r++) {
    for (let c = Math.max(0, column - 1); c <= Math.min(columns - 1, column + 1); c++) {
      const weight = cells[r * columns + c];
      [total, x, y] = [total + weight, x + weight * (c + 0.5), y + weight * (r + 0.5)];
    }
  }
  return total > 0 ? [x / total / columns, y / total / rows] : [0.5, 0.5];
};
