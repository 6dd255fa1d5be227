// Reading values off a chart: a line across all curves at one step, by pointer or arrow keys, with a value for each.
import { make, number, shape, thousands } from "./studio.js";

const SHEET = "/static/chart.css";
document.head.append(make("link", { rel: "stylesheet", href: SHEET }));

const nearest = (points, x) => {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low && x - points[low - 1][0] <= points[low][0] - x ? low - 1 : low;
};
const show = (value) => (Number.isInteger(value) && Math.abs(value) >= 1000 ? thousands(value) : number(value, 4));

// curves: [{name, colour, dash, raw, points}]: points are smoothed. reading: x; readAt(x) shows it again in a new chart.
export const hover = (figure, picture, curves, { title, name, across, up, size: [width, height], inner: [top, bottom] }) => {
  const steps = [...new Set(curves.flatMap(({ raw }) => raw.map(([x]) => x)))].sort((one, other) => one - other);
  const line = shape("line", { class: "crosshair", y1: top, y2: bottom, visibility: "hidden" });
  const marks = curves.map(({ colour }) => shape("circle", { class: "reading", r: 4, fill: colour, visibility: "hidden" }));
  const tip = make("div", { className: "tip", hidden: true });
  const spoken = make("p", { className: "spoken", role: "status" });
  picture.append(line, ...marks);
  figure.append(tip, spoken);
  picture.setAttribute("tabindex", "0");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${title}: ${curves.map((curve) => curve.name).join(", ")}; the arrow keys read values`);

  const clear = () => {
    figure.reading = undefined;
    for (const node of [line, ...marks]) node.setAttribute("visibility", "hidden");
    tip.hidden = true;
    spoken.textContent = "";
  };
  // A curve that ended before, or begins after, has no value there.
  const valueAt = ({ raw, points }, x) => {
    const i = nearest(raw, x);
    const gap = Math.abs((raw[i + 1] ?? raw[i - 1] ?? raw[i])[0] - raw[i][0]);
    return Math.abs(raw[i][0] - x) > gap ? null : { x: raw[i][0], value: points[i][1], raw: raw[i][1] };
  };
  const entry = (curve, value, at) => {
    const colour = make("i", {});
    colour.style.color = curve.colour;
    const elsewhere = value.x === at ? "" : ` at ${show(value.x)}`;
    const raw = value.raw === value.value ? "" : ` (unsmoothed ${show(value.raw)})`;
    return make("li", {}, colour, `${curve.name}${elsewhere} `, make("b", {}, show(value.value)), raw);
  };
  const readAt = (x, speak = false) => {
    figure.reading = x;
    const at = across.at(x);
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    line.setAttribute("visibility", "visible");
    const rows = [];
    curves.forEach((curve, i) => {
      const value = valueAt(curve, x);
      marks[i].setAttribute("visibility", value ? "visible" : "hidden");
      if (!value) return;
      marks[i].setAttribute("cx", across.at(value.x));
      marks[i].setAttribute("cy", up.at(value.value));
      rows.push(entry(curve, value, x));
    });
    tip.replaceChildren(make("b", {}, `${name} ${show(x)}`), make("ul", {}, ...rows));
    tip.hidden = false;
    const box = picture.getBoundingClientRect();
    const left = (at / width) * box.width;
    const right = left > box.width / 2;
    tip.style.left = right ? "" : `${left + 12}px`;
    tip.style.right = right ? `${figure.clientWidth - left + 12}px` : "";
    tip.style.top = `${box.top - figure.getBoundingClientRect().top}px`;
    tip.style.maxWidth = `${Math.max(120, (right ? left : box.width - left) - 16)}px`;
    if (speak) spoken.textContent = `${name} ${show(x)}: ${rows.map((row) => row.textContent).join("; ")}`;
  };
  figure.readAt = (x) => readAt(steps[nearest(steps.map((step) => [step]), x)]);

  picture.onpointermove = picture.onpointerdown = (event) => {
    const box = picture.getBoundingClientRect();
    const pixel = ((event.clientX - box.left) / box.width) * width;
    figure.readAt(across.invert(Math.min(Math.max(pixel, across.at(steps[0])), across.at(steps.at(-1)))));
  };
  picture.onpointerleave = () => document.activeElement === picture || clear();
  picture.onblur = clear;
  picture.onkeydown = (event) => {
    const now = figure.reading === undefined ? steps.length : steps.indexOf(figure.reading);
    const page = Math.max(1, Math.round(steps.length / 10));
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - page, PageDown: now + page, Home: 0, End: steps.length - 1 };
    if (event.key === "Escape") return clear();
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    return readAt(steps[Math.min(Math.max(moves[event.key], 0), steps.length - 1)], true);
  };
};
