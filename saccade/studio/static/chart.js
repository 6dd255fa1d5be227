// Line charts over steps or time, whose values are read with the pointer or the arrow keys.
import { COLOURS, make, shape } from "./studio.js";
import { hover } from "./chart_hover.js";
import { scaleOf, smooth } from "./chart_scale.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, BELOW, ABOVE] = [420, 200, 46, 12, 26, 10];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"]; // of more lines than there are colours

const label = (value) => {
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(4))}M`;
  if (Math.abs(value) >= 10000) return `${Number((value / 1000).toPrecision(4))}k`;
  return String(Number(value.toPrecision(6)));
};

// Draw a vertical line in a chart, at a fraction of its width.
export const mark = (figure, fraction) => {
  const x = LEFT + fraction * (WIDTH - LEFT - RIGHT);
  figure.querySelector(".now")?.remove();
  figure.querySelector("svg").append(shape("line", { class: "now", x1: x, x2: x, y1: ABOVE, y2: HEIGHT - BELOW }));
};

const axes = (picture, across, up, name) => {
  for (const value of up.ticks(5)) {
    const y = up.at(value);
    picture.append(shape("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }));
    picture.append(shape("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, label(value)));
  }
  for (const value of across.ticks(5)) {
    const x = across.at(value);
    if (x > WIDTH - 24 - 7 * name.length) continue; // the label of the axis is there
    picture.append(shape("text", { x, y: HEIGHT - 8, "text-anchor": "middle" }, label(value)));
  }
  picture.append(shape("text", { x: WIDTH - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, name));
};
const lineOf = (points, project) => points.map((point, i) => `${i ? "L" : "M"}${project(point).map((value) => value.toFixed(1)).join(" ")}`).join("");
const keyOf = ({ name, colour, dash, scatter }) => {
  const line = shape("svg", { viewBox: "0 0 22 8", width: 22, height: 8, "aria-hidden": "true" },
    scatter ? shape("circle", { cx: 11, cy: 4, r: 3.5, fill: colour }) : shape("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash }));
  return make("span", { className: "key" }, line, name);
};

// series: [{name, points: [[x, y], ...], muted, scatter}]; of a scatter the points alone are drawn. The n-th always has the n-th colour, whichever have points.
// logX, logY: logarithmic axes, which leave out what is not above 0. smoothing: 0 to 1, with the line as it is faint.
export const chart = (series, { title, x = "step", logX = false, logY = false, smoothing = 0 }) => {
  const finite = series.map(({ points }) => points.filter(([, y]) => Number.isFinite(y)));
  const drawn = series.map((entry, i) => {
    const raw = finite[i].filter(([px, py]) => (!logX || px > 0) && (!logY || py > 0));
    const dash = DASHES[Math.floor(i / COLOURS.length) % DASHES.length];
    return { ...entry, raw, points: smoothing ? smooth(raw, smoothing) : raw, colour: COLOURS[i % COLOURS.length], dash };
  }).filter(({ raw }) => raw.length);
  const figure = make("figure", { className: "grow chart-figure" }, make("h3", {}, title));
  figure.dataset.title = title;
  const left = finite.flat().length - drawn.flatMap(({ raw }) => raw).length;
  const note = left ? [make("p", { className: "soft" }, `${left.toLocaleString("en")} of the values are not above 0: a logarithmic axis has no place for them.`)] : [];
  if (!drawn.length) {
    figure.append(...(note.length ? note : [make("p", { className: "soft" }, "No data yet.")]));
    return figure;
  }
  const all = drawn.flatMap(({ raw }) => raw);
  const across = scaleOf(all.map(([px]) => px), LEFT, WIDTH - RIGHT, logX);
  const up = scaleOf(all.map(([, py]) => py), HEIGHT - BELOW, ABOVE, logY);
  const project = ([px, py]) => [across.at(px), up.at(py)];
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart" });
  axes(picture, across, up, x);
  const dotsOf = (points, colour, r) => points.map((point) => {
    const [cx, cy] = project(point);
    return shape("circle", { cx, cy, r, fill: colour });
  });
  for (const { raw, points, colour, dash, muted, scatter } of drawn) {
    if (scatter) {
      picture.append(shape("g", { class: "data" }, ...dotsOf(raw, colour, 3.5)));
      continue;
    }
    if (smoothing) picture.append(shape("path", { d: lineOf(raw, project), stroke: colour, class: "raw" }));
    const dots = raw.length < 30 && !smoothing ? dotsOf(raw, colour, 3) : [];
    picture.append(shape("path", { d: lineOf(points, project), stroke: colour, "stroke-dasharray": dash, opacity: muted ? 0.35 : 1 }), ...dots);
  }
  figure.append(picture, ...(series.length > 1 ? drawn.map(keyOf) : []), ...note);
  hover(figure, picture, drawn, { title, name: x, across, up, size: [WIDTH, HEIGHT], inner: [ABOVE, HEIGHT - BELOW] });
  return figure;
};

// Replace the charts of a page by new ones; what is read off one of them, and the focus, stay.
export const replaceCharts = (container, figures) => {
  const before = new Map([...container.children].map((figure) => [figure.dataset.title, figure]));
  const focused = [...before.values()].find((figure) => figure.contains(document.activeElement));
  container.replaceChildren(...figures);
  for (const figure of figures) {
    const old = before.get(figure.dataset.title);
    if (old?.reading !== undefined) figure.readAt?.(old.reading);
    if (old && old === focused) figure.querySelector("svg.chart")?.focus();
  }
};
