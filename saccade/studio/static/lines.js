// The line view: queries on the left, keys on the right, and a line for each weight above a threshold.
import { rove } from "./roving.js";
import { COLOURS, make, shape } from "./studio.js";

const [LINE_HEIGHT, WIDTH, MIN_WEIGHT, SHOWN] = [22, 500, 0.03, 60];
const LABELS = 165; // of the width, for the labels of each side

// Lines are drawn by the weight itself, so that those of two heads can be compared: the strongest possible one is 1.
const opacityOf = (weight) => Math.min(1, 0.08 + weight);
export const drawLineScale = (canvas) => {
  [canvas.width, canvas.height] = [64, 1];
  const pen = canvas.getContext("2d");
  const colour = getComputedStyle(canvas).getPropertyValue(COLOURS[0].slice(4, -1));
  for (let i = 0; i < 64; i++) {
    [pen.fillStyle, pen.globalAlpha] = [colour, i / 63 < MIN_WEIGHT ? 0 : opacityOf(i / 63)];
    pen.fillRect(i, 0, 1, 1);
  }
};

// heads: [{name, colour, weights (Float32Array of rows x columns)}]; selected: a row, or -1 for all.
export const lines = ({ rows, columns, heads, selected, select }) => {
  const height = LINE_HEIGHT * Math.max(rows.length, columns.length) + 8;
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "lines", role: "group", "aria-label": "lines from queries to keys" });
  picture.style.maxHeight = `max(${height}px, 100vh - 26rem)`; // a short text does not grow beyond the window
  const y = (i) => (i + 0.5) * LINE_HEIGHT + 4;
  const [left, right] = [LABELS, WIDTH - LABELS];
  const curves = shape("g", {});
  heads.forEach(({ weights, colour }) => {
    for (let r = 0; r < rows.length; r++) {
      if (selected >= 0 && r !== selected) continue;
      for (let c = 0; c < columns.length; c++) {
        const weight = weights[r * columns.length + c];
        if (weight < MIN_WEIGHT) continue;
        curves.append(shape("path", {
          d: `M${left} ${y(r)}C${left + 60} ${y(r)} ${right - 60} ${y(c)} ${right} ${y(c)}`,
          stroke: colour, "stroke-width": 1 + 3 * weight, opacity: opacityOf(weight), fill: "none",
        }));
      }
    }
  });
  picture.append(curves);
  const side = (labels, x, anchor, interactive) => labels.forEach((label, i) => {
    const hit = shape("rect", { class: `hit${interactive && i === selected ? " on" : ""}`, x: anchor === "end" ? 0 : x - 6, y: i * LINE_HEIGHT + 4, width: LABELS + 6, height: LINE_HEIGHT });
    const text = shape("text", { x, y: y(i), "text-anchor": anchor }, label.length > 21 ? `${label.slice(0, 20)}\u2026` : label);
    if (interactive) {
      hit.setAttribute("role", "button");
      hit.setAttribute("aria-label", label);
      hit.setAttribute("aria-pressed", String(i === selected));
      hit.onkeydown = (event) => {
        if (!["Enter", " "].includes(event.key)) return;
        event.preventDefault();
        select(i, true);
      };
      hit.onpointerenter = hit.onfocus = () => select(i, false);
      hit.onclick = () => select(i, true);
    }
    picture.append(text, hit);
  });
  side(rows, left - 8, "end", true);
  side(columns, right + 8, "start", false);
  rove(picture, "[role=button]");
  return picture;
};
export const keys = (heads) => heads.map(({ name, colour }) => {
  const key = make("span", { className: "key" }, make("i"), name);
  key.firstChild.style.color = colour;
  return key;
});
export const colourOf = (i) => COLOURS[i % COLOURS.length];
export { SHOWN };
