// The view of a node axis: the graph, with the edges and nodes that the selected node attends to.
import { digits, make, shape } from "../studio.js";
import * as tokens from "./tokens.js";

const SIDE = 1000; // of the drawing, in its own units
const MARGIN = 60;
const LABELLED = 80; // nodes of a graph whose names are written beside them
const BEND = 0.08; // of the curve of a weight, so that it is seen beside its edge

// The same parameters as the view of tokens, and the axis itself: the selected node is the query, values are its weights.
export const show = ({ axis, labels, values = null, largest = 1, selected = -1, select = null, ...others }) => {
  if (axis.positions.length < labels.length) return tokens.show({ labels, values, largest, selected, select, ...others });
  const point = (i) => axis.positions[i].map((part) => MARGIN + part * (SIDE - 2 * MARGIN));
  const strength = (i) => Math.min(1, Math.max(0, (values?.[i] ?? 0) / largest));
  const radius = Math.max(5, Math.min(20, 220 / Math.sqrt(labels.length)));
  const picture = shape("svg", { class: "graph-view", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "group", tabindex: "0" });
  picture.setAttribute("aria-label", `graph of ${labels.length} nodes${selected < 0 ? "" : `, node ${labels[selected]} selected`}`);
  Object.assign(picture.dataset, { kind: "nodes", selected });
  for (const [a, b] of axis.edges) {
    if (a >= labels.length || b >= labels.length) continue;
    const [[x1, y1], [x2, y2]] = [point(a), point(b)];
    picture.append(shape("line", { class: "edge", x1, y1, x2, y2 }));
  }
  const neighbours = new Set(axis.edges.filter((pair) => pair.includes(selected)).map(([a, b]) => (a === selected ? b : a)));
  for (const key of neighbours) {
    if (key === selected || !strength(key)) continue;
    const [[x0, y0], [x1, y1]] = [point(key), point(selected)];
    const middle = [(x0 + x1) / 2 + BEND * (y1 - y0), (y0 + y1) / 2 - BEND * (x1 - x0)];
    picture.append(shape("path", {
      class: "attention", d: `M${x0} ${y0}Q${middle.join(" ")} ${x1} ${y1}`,
      "stroke-width": 2 + 7 * strength(key), "stroke-opacity": 0.15 + 0.85 * strength(key), "data-key": key,
    }));
  }
  labels.forEach((label, i) => {
    const [cx, cy] = point(i);
    const tip = shape("title", {});
    tip.textContent = values ? `${label}: ${digits(values[i], 4)}` : label;
    const node = shape("g", { class: i === selected ? "node on" : "node", "data-node": i },
      shape("circle", { cx, cy, r: radius }), shape("circle", { class: "weight", cx, cy, r: radius, "fill-opacity": strength(i) }), tip);
    if (labels.length <= LABELLED) {
      const text = shape("text", { x: cx + radius + 3, y: cy - radius });
      text.textContent = label;
      node.append(text);
    }
    if (select) node.onclick = () => select(i);
    picture.append(node);
  });
  if (select) {
    picture.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      select((selected + step + labels.length) % labels.length);
    };
  }
  return make("div", { className: "graph" }, picture);
};
