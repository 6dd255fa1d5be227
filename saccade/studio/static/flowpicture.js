// The residual stream of one token as a ribbon, from the embedding at the top to the logits at the bottom.
import { make, number, shape } from "./studio.js";
import { rove } from "./roving.js";

const ROW = 64; // pixels of a sub-layer
const ENDS = 74; // of the embedding and of the output
const SHOWN = 3; // tokens that flow into an attention sub-layer
const THICK = 44; // pixels of the widest ribbon of a sub-layer
const NARROW = 560; // pixels of a picture without a column for predictions
const percent = (value) => (value >= 0.9995 ? "100%" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`);

// A ribbon between two horizontal edges, of widths w0 and w1.
const ribbon = (x0, y0, w0, x1, y1, w1, name) => {
  const bend = (y0 + y1) / 2;
  const [a, b, c, d] = [x0 - w0 / 2, x0 + w0 / 2, x1 - w1 / 2, x1 + w1 / 2];
  return shape("path", { class: `ribbon ${name}`, d: `M${a} ${y0}C${a} ${bend} ${c} ${bend} ${c} ${y1}L${d} ${y1}C${d} ${bend} ${b} ${bend} ${b} ${y0}Z` });
};
// A ribbon that starts at the side (vertical edge) and joins the stream from above (horizontal edge).
const joining = (x0, y0, w0, x1, y1, w1, name) => {
  const inside = x0 < x1 ? 1 : -1;
  const [near, far] = [x1 - (inside * w1) / 2, x1 + (inside * w1) / 2];
  const [top, bottom] = [y0 - w0 / 2, y0 + w0 / 2];
  return shape("path", { class: `ribbon ${name}`, d: `M${x0} ${top}C${(x0 + far) / 2} ${top} ${far} ${top} ${far} ${y1}L${near} ${y1}C${near} ${bottom} ${(x0 + near) / 2} ${bottom} ${x0} ${bottom}Z` });
};
const across = (x0, y0, w0, x1, y1, w1, name) => {
  const bend = (x0 + x1) / 2;
  return shape("path", { class: `ribbon ${name}`, d: `M${x0} ${y0 - w0 / 2}C${bend} ${y0 - w0 / 2} ${bend} ${y1 - w1 / 2} ${x1} ${y1 - w1 / 2}L${x1} ${y1 + w1 / 2}C${bend} ${y1 + w1 / 2} ${bend} ${y0 + w0 / 2} ${x0} ${y0 + w0 / 2}Z` });
};
const text = (x, y, content, name = "", anchor = "start") => shape("text", { x, y, class: name, "text-anchor": anchor }, content);
const cut = (label, most) => (label.length > most ? `${label.slice(0, most - 1)}\u2026` : label);
const nodes = (...children) => shape("g", {}, ...children);

const shownSources = ({ attended, update }) => (attended?.sources ?? []).slice(0, SHOWN).filter(({ norm }) => norm > 0.02 * update);
// Whether the largest norms are so large that only square roots of what is usually added can be seen beside them.
export const isUneven = ({ stages }) => {
  const added = stages.map(({ update }) => update).sort((a, b) => a - b);
  return Math.max(...stages.map(({ result }) => result), added.at(-1)) > 10 * added[Math.floor(added.length / 2)];
};
const layout = (flow, width, sqrt) => {
  const wide = width >= NARROW;
  const lens = flow.lens && wide ? Math.min(190, width * 0.22) : 0;
  const labels = wide ? Math.min(170, width * 0.2) : 84;
  const box = wide ? 128 : 66;
  const centre = labels + (width - labels - lens) * (wide ? 0.5 : 0.54);
  const size = sqrt ? Math.sqrt : (norm) => norm;
  const largest = size(Math.max(flow.embedding.x, flow.output.result, ...flow.stages.flatMap(({ x, result }) => [x, result])));
  const widest = Math.max(...flow.stages.flatMap((stage) => [size(stage.update), shownSources(stage).reduce((sum, { norm }) => sum + size(norm), 0)]));
  const [left, right] = [labels + 10, width - lens - box - 10];
  const room = Math.min(150, 2 * Math.min(centre - left - box, right - centre) - 12);
  const scale = Math.min(Math.max(room, 40) / largest, THICK / (widest || largest)); // pixels of a norm of 1
  return { wide, lens, labels, box, centre, scale, sqrt, width, left, right, thick: (norm) => size(norm) * scale };
};
const boxOf = (x, y, size, thick, name, title) => nodes(shape("rect", { x, y: y - Math.max(30, thick + 6) / 2, width: size, height: Math.max(30, thick + 6), rx: 6, class: `box ${name}` }), text(x + size / 2, y + 1, title, "box-title", "middle"));

// Each stage is a group that can be focused: what it draws lies between y and y + its height.
const group = (name, label, y, height, view, ...children) => {
  const item = shape("g", { class: "stage", role: "button", tabindex: -1, "aria-label": label, "data-stage": name, "aria-pressed": "false" },
    shape("rect", { x: 1, y: y + 1, width: view.width - 2, height: height - 2, rx: 8, class: "ground" }), ...children);
  return item;
};
const attention = (stage, y, view) => {
  const middle = y + ROW * 0.42;
  const shown = shownSources(stage);
  const short = { self: view.wide ? "Self-attention" : "Self-att.", cross: view.wide ? "Cross-attention" : "Cross-att." }[stage.kind];
  const children = [];
  const apart = Math.min(17, (ROW - 8) / Math.max(1, shown.length));
  let top = middle - shown.reduce((sum, { norm }) => sum + Math.max(1, view.thick(norm)), 0) / 2;
  shown.forEach(({ label, weight, norm }, i) => {
    const thick = Math.max(1, view.thick(norm));
    const from = middle + (i - (shown.length - 1) / 2) * apart;
    children.push(across(view.labels - 6, from, thick, view.left + 2, top + thick / 2, thick, "incoming"));
    children.push(text(view.labels - 10, from + 1, `${cut(label, view.wide ? 14 : 6)} ${percent(weight)}`, "source", "end"));
    top += thick;
  });
  const thick = Math.max(1, view.thick(stage.update));
  children.push(joining(view.left + view.box, middle, thick, view.centre, y + ROW, thick, "attention"));
  children.push(boxOf(view.left, middle, view.box, thick, "attention", short));
  return children;
};
const feed = (stage, y, view) => {
  const middle = y + ROW * 0.42;
  const thick = Math.max(1, view.thick(stage.update));
  return [joining(view.right, middle, thick, view.centre, y + ROW, thick, "feed"), boxOf(view.right, middle, view.box, thick, "feed", view.wide ? "Feed-forward" : "Feed-fwd")];
};
const layerOf = (title) => title.split(" \u00b7 ")[0];
const spoken = (stage) => {
  const strongest = stage.attended?.sources[0];
  const from = strongest ? ` Most comes from ${strongest.label}.` : "";
  return `${stage.title}: adds a vector of norm ${number(stage.update)} to ${number(stage.x)}, which gives ${number(stage.result)}.${from}`;
};
const prediction = (entry, y, view) => {
  if (!view.lens || !entry) return [];
  const [label, probability] = entry.top[0];
  return [shape("line", { class: "lens-line", x1: view.centre, x2: view.width - view.lens + 4, y1: y, y2: y }),
    text(view.width - view.lens + 10, y + 1, `${cut(label.trim() || label, 14)} ${percent(probability)}`, "lens")];
};
const stageGroup = (flow, i, y, view) => {
  const stage = flow.stages[i];
  const stream = ribbon(view.centre, y, view.thick(stage.x), view.centre, y + ROW, view.thick(stage.result), "stream");
  const inner = stage.kind === "feed" ? feed(stage, y, view) : attention(stage, y, view);
  const first = i === 0 || flow.stages[i - 1].layer !== stage.layer;
  const name = first ? [text(view.width - view.lens - (view.wide ? 12 : 6), y + 16, layerOf(stage.title), "layer", "end"),
    shape("line", { class: "rule", x1: 6, x2: view.width - view.lens - 6, y1: y, y2: y })] : [];
  const last = flow.stages[i + 1]?.layer !== stage.layer;
  const lens = last && flow.lens?.find(({ layer }) => layer === stage.layer);
  return group(stage.name, spoken(stage), y, ROW, view, stream, ...inner, ...name, ...(lens ? prediction(lens, y + ROW - 11, view) : []));
};
const partText = ({ parts, embedding, added }) => [...(parts.length ? parts : [{ name: "embedding", norm: embedding }]), ...added]
  .map(({ name, norm }) => `${name} ${number(norm)}`).join(" + ");

// select(name, pinned): a stage is pointed at, or chosen.
export const drawFlow = (place, flow, { select, selected, sqrt }) => {
  const width = Math.max(320, place.clientWidth);
  const view = layout(flow, width, sqrt);
  const height = 2 * ENDS + ROW * flow.stages.length;
  const { centre, thick } = view;
  const start = thick(flow.embedding.x);
  const groups = [group("embedding", `Embedding: ${partText(flow.embedding)}; the residual stream begins with a norm of ${number(flow.embedding.x)}.`, 0, ENDS, view,
    ribbon(centre, 40, start, centre, ENDS, start, "stream"), text(centre, 18, cut(flow.label, 30), "token-name", "middle"),
    text(centre, 34, view.wide ? partText(flow.embedding) : "embedding", "note", "middle"), ...prediction(flow.lens?.[0], ENDS - 11, view))];
  flow.stages.forEach((_, i) => groups.push(stageGroup(flow, i, ENDS + i * ROW, view)));
  const below = height - ENDS;
  const top = flow.lens?.at(-1).top.slice(0, 3).map(([label, probability]) => `${cut(label.trim() || label, 12)} ${percent(probability)}`).join("   ");
  groups.push(group("output", `Output of the stack: norm ${number(flow.output.result)}.${top ? ` Most likely: ${top}.` : ""}`, below, ENDS, view,
    ribbon(centre, below, thick(flow.output.x), centre, below + 34, thick(flow.output.result), "stream"),
    text(centre, below + 50, top ? "logits" : "output of the stack", "note", "middle"), text(centre, below + 67, top ?? `norm ${number(flow.output.result)}`, "token-name", "middle")));
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "flow-picture", role: "group", "aria-label": `Flow of ${flow.label}` }, ...groups);
  place.replaceChildren(legend(flow, view), picture);
  const mark = (name) => groups.forEach((item) => {
    item.classList.toggle("on", item.dataset.stage === name);
    item.setAttribute("aria-pressed", String(item.dataset.stage === name));
  });
  let pinned = selected;
  for (const item of groups) {
    const { stage } = item.dataset;
    item.onpointerenter = () => pinned || select(stage, false);
    item.onfocus = () => pinned || select(stage, false);
    item.onclick = () => {
      pinned = pinned === stage ? "" : stage;
      mark(pinned);
      select(stage, Boolean(pinned));
    };
    item.onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      item.onclick();
    };
  }
  mark(pinned);
  rove(picture, ".stage");
};
// A scale bar: a round norm, and how wide it is drawn.
const legend = (flow, { scale, sqrt, thick, lens }) => {
  const target = sqrt ? (60 / scale) ** 2 : 60 / scale;
  const power = 10 ** Math.floor(Math.log10(target));
  const norm = [5, 2, 1].map((factor) => factor * power).find((value) => value <= target) ?? power;
  const bar = make("i", { className: "scale-bar" });
  bar.style.width = `${thick(norm)}px`;
  const key = (name, label) => make("span", { className: `flow-key ${name}` }, make("i", {}), label);
  return make("p", { className: "legend" }, make("span", {}, bar, ` norm ${number(norm)}${sqrt ? " (widths are square roots)" : ""}`), key("stream", "residual stream"), key("attention", "attention"), key("feed", "feed-forward"),
    make("span", { className: "soft" }, `Tokens on the left: how much each contributes, with its largest weight.${lens ? " On the right: the most likely output after each layer (logit lens)." : ""}`));
};
