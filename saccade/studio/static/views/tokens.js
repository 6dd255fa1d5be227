// The view of a token axis, and of every axis that has no other view: labels in a row, shaded by their values.
import { digits, make } from "../studio.js";

const MAX_LABELS = 4096; // labels on screen
const MAX_OPACITY = 0.65; // opacity of the largest value

export const token = (label, { value = 0, largest = 1, number = "", selected = false, select = null } = {}) => {
  const node = make(select ? "button" : "span", { className: "token" }, make("span", { dir: "auto" }, label), make("small", {}, number));
  if (select) {
    node.type = "button";
    node.onclick = select;
  }
  node.classList.toggle("on", selected);
  node.style.setProperty("--opacity", MAX_OPACITY * Math.min(1, Math.abs(value) / largest));
  if (value < 0) node.style.setProperty("--tint", "var(--b)");
  return node;
};

// labels: of the axis, merged to words or not. values: one per label, or none. select(i): a label was chosen.
export const show = ({ labels, values = null, largest = 1, selected = -1, select = null, signed = false }) =>
  make("div", { className: "strip" }, ...labels.slice(0, MAX_LABELS).map((label, i) => token(label, {
    value: values?.[i] ?? 0,
    largest,
    number: values && (signed || values[i] >= 0.005) ? digits(values[i]) : "",
    selected: i === selected,
    select: select && (() => select(i)),
  })));
