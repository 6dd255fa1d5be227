// The view of a token axis, and of every axis that has no other view: labels in a row, shaded by their values.
import { rove } from "../roving.js";
import { digits, make, number as plain } from "../studio.js";

const MAX_LABELS = 4096; // labels on screen

// value / largest: how strong the tint is, from 0 to 1; the style sheet says how much of the colour that is at most.
export const token = (label, { value = 0, largest = 1, number = "", selected = false, select = null } = {}) => {
  const node = make(select ? "button" : "span", { className: "token" }, make("span", { dir: "auto" }, label), make("small", {}, number));
  if (select) {
    node.type = "button";
    node.onclick = select;
    node.setAttribute("aria-pressed", String(selected));
  }
  node.classList.toggle("on", selected);
  node.style.setProperty("--opacity", Math.min(1, Math.abs(value) / largest));
  if (value < 0) node.style.setProperty("--tint", "var(--b)");
  return node;
};

// The tints from 0 to the largest value, for a legend.
export const drawTintScale = (canvas) => {
  [canvas.width, canvas.height] = [64, 1];
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  pen.fillStyle = style.getPropertyValue("--ink");
  for (let i = 0; i < 64; i++) {
    pen.globalAlpha = (i / 63) * Number(style.getPropertyValue("--strength"));
    pen.fillRect(i, 0, 1, 1);
  }
};
// A weight with two decimals, none for one near 0; a signed value may be of any size.
export const numberOn = (value, signed) => (signed ? plain(value, 2) : value >= 0.005 ? digits(value) : "");

// labels: of the axis, merged to words or not. values: one per label, or none. select(i): a label was chosen.
export const show = ({ labels, values = null, largest = 1, selected = -1, select = null, signed = false }) => {
  const strip = make("div", { className: "strip" }, ...labels.slice(0, MAX_LABELS).map((label, i) => token(label, {
    value: values?.[i] ?? 0, largest, number: values ? numberOn(values[i], signed) : "",
    selected: i === selected, select: select && (() => select(i)),
  })));
  if (select) rove(strip, ".token");
  return strip;
};
