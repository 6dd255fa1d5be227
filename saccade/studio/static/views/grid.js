// The view of a grid axis: a heat map of the values over the image that the grid covers.
import { digits, make } from "../studio.js";
import { token } from "./tokens.js";

const MAX_OPACITY = 190; // opacity of the largest value, of 255
const POSITIVE = [224, 40, 24];
const NEGATIVE = [26, 86, 196];

const heatMap = (canvas, values, { rows, columns }, largest) => {
  [canvas.width, canvas.height] = [Math.max(1, columns), Math.max(1, rows)];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  values.forEach((value, i) => {
    const [red, green, blue] = value < 0 ? NEGATIVE : POSITIVE;
    image.data.set([red, green, blue, (MAX_OPACITY * Math.abs(value)) / largest], 4 * i);
  });
  pen.putImageData(image, 0, 0);
};

// The same parameters as the view of tokens, and the axis itself; positions before the grid are shown as tokens.
export const show = ({ axis, labels, values = null, largest = 1, selected = -1, select = null, signed = false }) => {
  const first = axis.extra.length;
  const cells = Array.from({ length: axis.rows * axis.columns }, (_, i) => values?.[first + i] ?? 0);
  const canvas = make("canvas", { className: "heat" });
  heatMap(canvas, cells, axis, largest);
  const outline = make("div", { className: "outline", hidden: selected < first });
  const picture = make("div", { className: "picture" }, ...(axis.image ? [make("img", { src: axis.image, alt: "" })] : []), canvas, outline);
  Object.assign(picture.dataset, { kind: "grid", selected });
  picture.style.aspectRatio = `${axis.columns} / ${axis.rows}`;
  picture.setAttribute("role", select ? "grid" : "img");
  picture.setAttribute("aria-label", `${axis.rows} by ${axis.columns} cells over the image${selected < first ? "" : `, cell ${labels[selected]} selected`}`);
  const cell = Math.max(0, selected - first);
  Object.assign(outline.style, {
    left: `${(100 * (cell % axis.columns)) / axis.columns}%`, top: `${(100 * Math.floor(cell / axis.columns)) / axis.rows}%`,
    width: `${100 / axis.columns}%`, height: `${100 / axis.rows}%`,
  });
  const cellAt = (event) => {
    const box = picture.getBoundingClientRect();
    const column = Math.min(axis.columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * axis.columns)));
    const row = Math.min(axis.rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * axis.rows)));
    return first + row * axis.columns + column;
  };
  picture.onpointermove = (event) => {
    const i = cellAt(event);
    picture.title = values ? `${labels[i]}: ${digits(values[i], 4)}` : labels[i];
  };
  if (select) {
    picture.tabIndex = 0;
    picture.onclick = (event) => select(cellAt(event));
    picture.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: axis.columns, ArrowUp: -axis.columns }[event.key];
      if (!step) return;
      event.preventDefault();
      select(Math.min(labels.length - 1, Math.max(first, Math.max(selected, first) + step)));
    };
  }
  const extra = labels.slice(0, first).map((label, i) => token(label, {
    value: values?.[i] ?? 0, largest, number: values && (signed || values[i] >= 0.005) ? digits(values[i]) : "",
    selected: i === selected, select: select && (() => select(i)),
  }));
  return make("div", { className: "grid-view" }, ...(extra.length ? [make("div", { className: "strip" }, ...extra)] : []), picture);
};
