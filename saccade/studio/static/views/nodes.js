// The view of a node axis: the graph, with the edges and nodes that the selected node attends to.
// The rim of a node is its predicted label, where nodes have one.
import { keys } from "../lines.js";
import { COLOURS, digits, make, shade, shape } from "../studio.js";
import * as tokens from "./tokens.js";

const SIDE = 1000; // of the drawing, in its own units
const MARGIN = 60;
const LABELLED = 80; // nodes of a graph whose names are written beside them
const RIMS = COLOURS.slice(1); // the first is that of weights
const BEND = 0.08; // of the curve of a weight, so that it is seen beside its edge

// The same parameters as the view of tokens, and the axis itself: the selected node is the query, values are its weights.
export const show = ({ axis, labels, values = null, largest = 1, selected = -1, select = null, ...others }) => {
  if (axis.positions.length < labels.length) return tokens.show({ labels, values, largest, selected, select, ...others });
  const tags = [...new Set(axis.tags)].sort(); // none in snapshots of earlier versions
  const coloured = tags.length > 0 && tags.length <= RIMS.length; // of more labels the names are written
  const point = (i) => axis.positions[i].map((part) => MARGIN + part * (SIDE - 2 * MARGIN));
  const strength = (i) => Math.min(1, Math.abs(values?.[i] ?? 0) / largest);
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
      "stroke-width": 2 + 7 * strength(key), "data-key": key, stroke: shade(0.15 + 0.85 * strength(key)),
    }));
  }
  labels.forEach((label, i) => {
    const [cx, cy] = point(i);
    const tip = shape("title", {});
    tip.textContent = [label, axis.tags?.[i], values && digits(values[i], 4)].filter(Boolean).join(", ");
    const fill = values?.[i] < 0 ? { fill: "var(--b)", "fill-opacity": strength(i) } : { fill: shade(strength(i)) };
    const rim = coloured ? { stroke: RIMS[tags.indexOf(axis.tags[i])], "stroke-width": 5 } : { stroke: "currentColor", "stroke-width": 1.5 };
    const node = shape("g", { class: i === selected ? "node on" : "node", "data-node": i },
      shape("circle", { class: "mark", cx, cy, r: radius + 8 }), shape("circle", { class: "ground", cx, cy, r: radius }),
      shape("circle", { class: "weight", cx, cy, r: radius, ...fill, ...rim }), tip);
    if (labels.length <= LABELLED) {
      const left = cx > SIDE - 4 * MARGIN; // the name of a node at the right stays inside
      const text = shape("text", { x: cx + (left ? -1 : 1) * (radius + 5), y: cy - radius, "text-anchor": left ? "end" : "start" });
      text.textContent = tags.length && !coloured ? `${label} ${axis.tags[i]}` : label;
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
  const legend = coloured ? [make("div", { className: "row" }, "predicted: ", ...keys(tags.map((name, i) => ({ name, colour: RIMS[i] }))))] : [];
  return make("div", { className: "graph" }, picture, ...legend);
};
