// Line charts over steps or time.
import { COLOURS, make, shape } from "./studio.js";

const [WIDTH, HEIGHT, LEFT, BELOW, ABOVE] = [420, 200, 46, 26, 10];

const ticks = (low, high, count) => {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
  const values = [];
  // Multiples, not sums of steps: 0.02 - 2 * 0.01 would be 3e-18 instead of 0.
  for (let number = Math.ceil(low / step); number * step <= high + step * 1e-9; number++) values.push(number * step);
  return values;
};
const label = (value) => (Math.abs(value) >= 10000 ? `${value / 1000}k` : String(Number(value.toPrecision(6))));

// Draw a vertical line in a chart, at a fraction of its width.
export const mark = (figure, fraction) => {
  const x = LEFT + fraction * (WIDTH - LEFT - 12);
  figure.querySelector(".now")?.remove();
  figure.querySelector("svg").append(shape("line", { class: "now", x1: x, x2: x, y1: ABOVE, y2: HEIGHT - BELOW }));
};

// series: [{name, points: [[x, y], ...]}]
export const chart = (series, { title, x = "step" }) => {
  const points = series.flatMap((entry) => entry.points).filter(([, value]) => Number.isFinite(value));
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": title });
  if (!points.length) return make("p", { className: "soft" }, "No data yet.");
  const bounds = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const [left, right] = bounds(points.map((point) => point[0]));
  const [low, high] = bounds(points.map((point) => point[1]));
  const project = ([px, py]) => [
    LEFT + ((px - left) / (right - left || 1)) * (WIDTH - LEFT - 12),
    ABOVE + (1 - (py - low) / (high - low || 1)) * (HEIGHT - ABOVE - BELOW),
  ];
  for (const value of ticks(low, high, 5)) {
    const [, y] = project([left, value]);
    picture.append(shape("line", { class: "axis", x1: LEFT, x2: WIDTH - 12, y1: y, y2: y }));
    picture.append(shape("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, label(value)));
  }
  for (const value of ticks(left, right, 5)) {
    const [px] = project([value, low]);
    if (px > WIDTH - 24 - 7 * x.length) continue; // the label of the axis is there
    picture.append(shape("text", { x: px, y: HEIGHT - 8, "text-anchor": "middle" }, label(value)));
  }
  picture.append(shape("text", { x: WIDTH - 12, y: HEIGHT - 8, "text-anchor": "end" }, x));
  series.forEach((entry, i) => {
    const line = entry.points.filter(([, value]) => Number.isFinite(value)).map(project);
    if (!line.length) return;
    const path = line.map(([px, py], j) => `${j ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
    const colour = COLOURS[i % COLOURS.length];
    const dots = line.length < 30 ? line.map(([px, py]) => shape("circle", { cx: px, cy: py, r: 3, fill: colour })) : [];
    picture.append(shape("path", { d: path, stroke: colour, opacity: entry.muted ? 0.35 : 1 }), ...dots);
  });
  const keys = series.length > 1
    ? series.map(({ name }, i) => {
      const key = make("span", { className: "key" }, make("i"), name);
      key.firstChild.style.color = COLOURS[i % COLOURS.length];
      return key;
    })
    : [];
  return make("figure", { className: "grow" }, make("h3", {}, title), picture, ...keys);
};
