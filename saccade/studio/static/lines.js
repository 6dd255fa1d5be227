// The line view: what looks on the left, what is looked at on the right, and a line for each weight that counts.
import { COLOURS, make, shape } from "./common.js";

const [HIGH, WIDE, LEAST, SHOWN] = [22, 640, 0.03, 60];

// heads: [{name, colour, weights (Float32Array of count x columns)}]; first: the first row and column on screen.
export const lines = ({ rows, columns, heads, chosen, follow }) => {
  const height = HIGH * Math.max(rows.length, columns.length) + 8;
  const picture = shape("svg", { viewBox: `0 0 ${WIDE} ${height}`, class: "lines", role: "group", "aria-label": "lines" });
  const y = (i) => (i + 0.5) * HIGH + 4;
  const [left, right] = [220, WIDE - 220];
  const web = shape("g", {});
  heads.forEach(({ weights, colour }) => {
    for (let r = 0; r < rows.length; r++) {
      if (chosen >= 0 && r !== chosen) continue;
      for (let c = 0; c < columns.length; c++) {
        const weight = weights[r * columns.length + c];
        if (weight < LEAST) continue;
        web.append(shape("path", {
          d: `M${left} ${y(r)}C${left + 70} ${y(r)} ${right - 70} ${y(c)} ${right} ${y(c)}`,
          stroke: colour, "stroke-width": 1 + 3 * weight, opacity: Math.min(1, 0.08 + weight), fill: "none",
        }));
      }
    }
  });
  picture.append(web);
  const side = (labels, x, anchor, act) => labels.forEach((label, i) => {
    const hit = shape("rect", { class: `hit${act && i === chosen ? " on" : ""}`, x: anchor === "end" ? 0 : x - 6, y: i * HIGH + 4, width: 226, height: HIGH });
    const text = shape("text", { x, y: y(i), "text-anchor": anchor }, label.length > 26 ? `${label.slice(0, 25)}\u2026` : label);
    if (act) {
      hit.setAttribute("tabindex", "0");
      hit.setAttribute("role", "button");
      hit.setAttribute("aria-label", label);
      hit.onpointerenter = hit.onfocus = () => follow(i, false);
      hit.onclick = () => follow(i, true);
    }
    picture.append(text, hit);
  });
  side(rows, left - 8, "end", true);
  side(columns, right + 8, "start", false);
  return picture;
};
export const keys = (heads) => heads.map(({ name, colour }) => {
  const key = make("span", { className: "key" }, make("i"), name);
  key.firstChild.style.color = colour;
  return key;
});
export const colourOf = (i) => COLOURS[i % COLOURS.length];
export { SHOWN };
