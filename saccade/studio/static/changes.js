// What changed most: how much of every head did, as a grid of layers and heads, and the largest changes of all heads.
import { divergingColour, readableOn, signed } from "./diverging.js";
import { pairName } from "./pairs.js";
import { rove } from "./roving.js";
import { shorten } from "./search.js";
import { digits, make, shadeText } from "./studio.js";

const openButton = ([map, other], head, text, open) => {
  const button = make("button", { type: "button" }, text);
  Object.assign(button.dataset, { map, other, head });
  button.onclick = open;
  return button;
};
// layers: { maps, title, changed } of each pair of maps. open(maps, head) shows a head.
const grid = (layers, open) => {
  const largest = Math.max(...layers.flatMap(({ changed }) => changed).filter(Number.isFinite), 1e-9);
  const heads = Math.max(...layers.map(({ changed }) => changed.length));
  const titles = shorten(layers.map(({ title }) => title));
  const cell = (layer, title, head) => {
    const value = layer.changed[head];
    if (value === undefined) return make("td");
    const button = openButton(layer.maps, head, digits(value), () => open(layer.maps, head));
    [button.style.background, button.style.color] = shadeText((value ?? 0) / largest);
    button.setAttribute("aria-label", `${title}, head ${head}: ${digits(value)} changed`);
    return make("td", {}, button);
  };
  const indices = Array.from({ length: heads }, (_, head) => head);
  const table = make("table", {},
    make("caption", {}, "Part of the attention of each head that moved, mean over the queries of both"),
    make("thead", {}, make("tr", {}, make("td"), ...indices.map((head) => make("th", { scope: "col" }, String(head))))),
    make("tbody", {}, ...layers.map((layer, i) => make("tr", {}, make("th", { scope: "row" }, titles[i]), ...indices.map((head) => cell(layer, layer.title, head))))));
  return make("div", { className: "scroll search-grid" }, table);
};
const named = (labels) => make("bdi", {}, pairName(labels));
const ranking = (ranked, open) => {
  const largest = Math.max(...ranked.map(({ difference }) => Math.abs(difference)), 1e-9);
  const kind = shorten(ranked.map(({ title }) => title));
  const rows = ranked.map((change, i) => {
    const { maps, head, query, key, before, after, difference } = change;
    const button = openButton(maps, head, `${kind[i]} \u00b7 head ${head}`, () => open(maps, head, query, key));
    Object.assign(button.dataset, { query, key });
    const value = make("b", {}, signed(difference));
    const colour = divergingColour(difference / largest);
    Object.assign(value.style, { background: `rgb(${colour.join(" ")})`, color: readableOn(colour) });
    return make("tr", {}, make("td", {}, button),
      make("td", { className: "words" }, named(change.query_labels), " \u2192 ", named(change.key_labels)),
      ...[before, after].map((weight) => make("td", { className: "number" }, digits(weight))), make("td", { className: "number" }, value));
  });
  const names = [["Head", ""], ["Query \u2192 key", ""], ["A", "number"], ["B", "number"], ["B \u2212 A", "number"]];
  return make("div", { className: "scroll" }, make("table", { className: "ranking" },
    make("thead", {}, make("tr", {}, ...names.map(([name, className]) => make("th", { scope: "col", className }, name)))),
    make("tbody", {}, ...rows)));
};

// Show an answer in `place`.
export const showChanges = (place, { layers, ranked }, open) => {
  const heads = layers.reduce((sum, { changed }) => sum + changed.length, 0);
  place.replaceChildren(
    make("h3", {}, "By layer and head"), grid(layers, open),
    make("h3", {}, `Largest changes of ${heads} heads in ${layers.length} ${layers.length === 1 ? "layer" : "layers"}`),
    ranked.length ? ranking(ranked, open) : make("p", { className: "soft" }, "No weight differs."));
  rove(place.querySelector(".search-grid table"), "button");
  const table = place.querySelector(".ranking");
  if (table) rove(table, "button");
};
// Mark the head, and the change, that are on screen.
export const markChanges = (place, { map, other, head, row, column }) => {
  for (const button of place.querySelectorAll("[data-head]")) {
    const { dataset } = button;
    const same = dataset.map === map && dataset.other === other && Number(dataset.head) === head;
    button.setAttribute("aria-current", String(same && (dataset.query === undefined || (Number(dataset.query) === row && Number(dataset.key) === column))));
  }
};
