// The view of a grid axis: a heat map of the values over the image that the grid covers, and the path of a gaze.
import { aspectOf, isSmall, paintHeat } from "../heat.js";
import { digits, make, shape } from "../studio.js";
import { numberOn, token } from "./tokens.js";

// A line from gaze to gaze and a ring around the last one; points (x, y) are fractions of the image.
const gazePath = (points) => {
  const line = shape("svg", { class: "path", viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("polyline", { points: points.map((point) => point.join(" ")).join(",") }));
  const ring = make("span", { className: "gaze" });
  [ring.style.left, ring.style.top] = points.at(-1).map((part) => `${100 * part}%`);
  return [line, ring];
};

// The same parameters as the view of tokens, and the axis itself; positions before the grid are shown as tokens.
// path: points of the gaze so far. side: width of a square picture in rem; others have the same area.
export const show = ({ axis, labels, values = null, largest = 1, selected = -1, select = null, signed = false, path = [], side = 22 }) => {
  const first = axis.extra.length;
  const cells = Float32Array.from({ length: axis.rows * axis.columns }, (_, i) => values?.[first + i] ?? 0);
  const canvas = make("canvas", { className: "heat" });
  paintHeat(canvas, cells, axis, largest);
  const outline = make("div", { className: "outline", hidden: selected < first });
  const image = axis.image ? [make("img", { src: axis.image, alt: "", draggable: false, className: isSmall(axis.size) ? "coarse" : "" })] : [];
  const picture = make("div", { className: "picture" }, ...image, canvas, ...(path.length ? gazePath(path) : []), outline);
  Object.assign(picture.dataset, { kind: "grid", selected, choose: select ? "1" : "" });
  Object.assign(picture.style, { aspectRatio: String(aspectOf(axis)), width: `${(side * Math.sqrt(aspectOf(axis))).toFixed(1)}rem` });
  picture.setAttribute("role", select ? "group" : "img");
  if (select) picture.setAttribute("aria-roledescription", "picture, arrow keys move from cell to cell");
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
      select(selected < first ? first : Math.min(labels.length - 1, Math.max(first, selected + step)));
    };
  }
  const extra = labels.slice(0, first).map((label, i) => token(label, {
    value: values?.[i] ?? 0, largest, number: values ? numberOn(values[i], signed) : "",
    selected: i === selected, select: select && (() => select(i)),
  }));
  return make("div", { className: "grid-view" }, ...(extra.length ? [make("div", { className: "strip" }, ...extra)] : []), picture);
};
