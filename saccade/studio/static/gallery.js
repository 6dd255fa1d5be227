// The gallery: every head of a prediction with its pattern, in one colour scale, sorted by what is asked for.
import { decodeBytes, digits, drawPixels, make, number, query } from "./studio.js";
import { rove } from "./roving.js";
import { shorten } from "./search.js";

const SORTS = {
  layer: ["layer and head", () => 0],
  pattern: ["pattern", (a, b) => Boolean(strength(b)) - Boolean(strength(a)) || a.pattern.localeCompare(b.pattern) || strength(b) - strength(a)],
  entropy: ["entropy, sharpest first", (a, b) => a.entropy - b.entropy],
  distance: ["distance, farthest first", (a, b) => b.distance - a.distance],
  cost: ["ablation cost, largest first", (a, b) => b.cost - a.cost],
};
let sort = "pattern"; // stays for the next prediction
const strength = (head) => head.scores[head.pattern] ?? 0;

// The head that is shown above.
export const markHead = ({ map, heads }) => {
  for (const button of document.querySelectorAll(".head-card")) {
    button.setAttribute("aria-current", String(button.dataset.map === map && heads.at(-1) === Number(button.dataset.head)));
  }
};
const card = (head, choose) => {
  const canvas = make("canvas", {});
  drawPixels(canvas, decodeBytes(head.cells), Math.max(1, head.columns), 1);
  const weight = strength(head) ? ` ${digits(strength(head))}` : "";
  const cost = Number.isFinite(head.cost) ? `, cost ${number(head.cost, 2)}` : "";
  const button = make("button", { type: "button", className: "head-card" }, canvas,
    make("b", {}, `${head.pattern}${weight}`), make("span", {}, `${head.short} \u00b7 head ${head.head}`),
    make("small", {}, `entropy ${digits(head.entropy)}, distance ${digits(head.distance, 1)}${cost}`));
  Object.assign(button.dataset, { map: head.map, head: head.head });
  button.onclick = () => choose(head.map, head.head);
  return button;
};

// importance: what the answer loses without each head, by map; null: not computed.
export const gallery = ({ heads, importance, state, choose }) => {
  const over = make("a", { href: `/heads?${query({ model: state.model })}` }, "The same over a data set");
  const short = shorten(heads.map((head) => head.title));
  const entries = heads.map((head, i) => ({ ...head, short: short[i], cost: importance?.[head.map]?.[head.head] }));
  const select = make("select", { id: "gallery-sort" }, ...Object.entries(SORTS)
    .filter(([name]) => name !== "cost" || importance).map(([name, [text]]) => new Option(text, name)));
  const list = make("div", { className: "head-cards" });
  const draw = () => {
    const order = [...entries].sort(SORTS[importance || sort !== "cost" ? sort : "layer"][1]);
    list.replaceChildren(...order.map((head) => card(head, choose)));
    rove(list, "button");
    if (list.isConnected) markHead(state);
  };
  select.value = sort;
  select.onchange = () => {
    sort = select.value;
    draw();
  };
  draw();
  return [make("div", { className: "row" }, make("label", {}, "Sort by ", select),
    make("span", { className: "soft" }, "A pattern is named where it has more than half of the weight. All heads have the same colours: square roots of weights from 0 to 1."), over), list];
};
