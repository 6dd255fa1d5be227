// Find a head: the weight of the pinned query for the pinned key in every head of every layer, the strongest heads,
// and what each head attends to most from the query.
import { at, digits, make, query, request, shadeText } from "./studio.js";
import { rove } from "./roving.js";

const DELAY = 80; // milliseconds on one cell before all heads are asked for
const HELP = "Click a cell of the matrix: every head of every layer is ranked by its weight. Or click a word above for the query, then another for the key.";

// Titles without what all of them end with, such as the kind of attention.
export const shorten = (titles) => {
  const kind = titles[0].slice(titles[0].indexOf(" \u00b7 "));
  return kind.startsWith(" \u00b7 ") && titles.every((title) => title.endsWith(kind)) ? titles.map((title) => title.slice(0, -kind.length)) : titles;
};
// A table of layers and heads with one button per head.
const grid = (layers, caption, cellOf) => {
  const heads = Math.max(...layers.map((layer) => layer.top.length));
  const titles = shorten(layers.map((layer) => layer.title));
  const head = make("tr", {}, make("td"), ...Array.from({ length: heads }, (_, i) => make("th", { scope: "col" }, String(i))));
  const rows = layers.map((layer, i) => make("tr", {}, make("th", { scope: "row" }, titles[i]),
    ...layer.top.map((_, number) => make("td", {}, cellOf(layer, number)))));
  const table = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { className: "scroll search-grid" }, table);
};
const arrow = (from, to) => [make("bdi", {}, from), " \u2192 ", make("bdi", {}, to)];

// pin(): { query, key or -1 }, or null. open(map, head, key): a head was clicked; it shows the pinned query with that key.
export const headSearch = ({ state, prediction, pin, open, clear }) => {
  let answer = null; // for the pin
  let asked = ""; // what the answer is for
  let latest = 0; // of several requests only the last is shown
  let timer = 0;
  let wordsOnly = true;

  const headButton = (map, title, head, key, weight, ...text) => {
    const button = make("button", { type: "button" }, ...text);
    Object.assign(button.dataset, { map, head });
    [button.style.background, button.style.color] = shadeText(weight);
    button.setAttribute("aria-label", `${title}, head ${head}: ${text[0].textContent ?? ""} ${digits(weight)}`);
    button.onclick = () => open(map, head, key);
    return button;
  };
  const weights = () => grid(answer.layers, "Weight in every head", (layer, head) =>
    headButton(layer.name, layer.title, head, pin().key, layer.weights[head], digits(layer.weights[head]).replace(/^0/, "")));
  const ranked = () => make("ol", { className: "ranked" }, ...answer.ranked.map(({ map, title, head, key, label, weight }) => {
    const button = make("button", { type: "button", className: "quiet" }, `${title} \u00b7 head ${head} `,
      ...(answer.key === null ? [make("bdi", {}, label), " "] : []), make("b", {}, digits(weight)));
    Object.assign(button.dataset, { map, head });
    button.onclick = () => open(map, head, key);
    return make("li", {}, button);
  }));
  const follow = () => {
    const box = make("input", { type: "checkbox", checked: wordsOnly, id: "words-only" });
    box.onchange = () => {
      wordsOnly = box.checked;
      draw();
      at("words-only").focus();
    };
    const strip = grid(answer.layers, `The key with the largest weight of ${answer.query} in every head`, (layer, head) => {
      const { key, label, weight } = (wordsOnly && layer.words.length ? layer.words : layer.top)[head];
      const button = headButton(layer.name, layer.title, head, key, weight, make("bdi", {}, label));
      button.title = `${label} ${digits(weight, 4)}`;
      return button;
    });
    const heads = Math.max(...answer.layers.map((layer) => layer.top.length));
    strip.firstChild.style.minWidth = `${6.5 + 3.5 * heads}rem`; // labels, not letters: a narrow window scrolls
    return [make("div", { className: "row" }, make("h2", { className: "grow" }, "Follow this token: ", make("bdi", {}, answer.query)),
      make("label", {}, box, " Leave out special tokens, punctuation and the token itself")), strip];
  };

  const mark = () => {
    for (const button of document.querySelectorAll("#search [data-map], #follow [data-map]")) {
      button.setAttribute("aria-current", String(button.dataset.map === state.map && state.heads.at(-1) === Number(button.dataset.head)));
    }
    for (const part of document.querySelectorAll(".search-grid table, .ranked")) rove(part, "button");
  };
  const draw = () => {
    const places = () => [...document.querySelectorAll("#search button, #follow button")];
    const focused = places().indexOf(document.activeElement);
    at("follow").hidden = !answer?.layers.length;
    if (!answer) {
      at("matches").replaceChildren(make("p", { className: "soft" }, HELP));
      return;
    }
    if (!answer.layers.length) {
      at("matches").replaceChildren(make("p", { className: "soft" }, "No layer of the model has the axes of this map."));
      return;
    }
    const stop = make("button", { type: "button", className: "quiet" }, "Clear");
    stop.onclick = clear;
    const about = answer.key === null ? [make("bdi", {}, answer.query), " \u2192 any other word"] : arrow(answer.query, answer.key);
    at("matches").replaceChildren(
      make("p", { className: "row pair" }, make("b", { className: "grow" }, ...about), stop),
      ...(answer.key === null ? [] : [weights()]),
      make("h3", {}, "Strongest heads"), ranked());
    at("follow").replaceChildren(...follow());
    mark();
    if (focused >= 0) places()[Math.min(focused, places().length - 1)]?.focus();
  };
  const ask = async (key, parameters) => {
    const number = ++latest;
    try {
      const result = await request(`/api/look/${prediction().id}/heads?${query(parameters)}`);
      if (number !== latest) return;
      [answer, asked] = [result, key];
      draw();
      document.body.dataset.searched = key;
    } catch (error) {
      if (number === latest) at("matches").replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
    }
  };
  // Show what the pin, the map and the head are now.
  const update = () => {
    clearTimeout(timer);
    const chosen = pin();
    if (!chosen) {
      latest += 1;
      [answer, asked] = [null, ""];
      return draw();
    }
    const key = [prediction().id, chosen.query, chosen.key, state.words].join(" ");
    if (key === asked && answer.layers.some((layer) => layer.name === state.map)) return mark();
    const parameters = { map: state.map, query: chosen.query, key: chosen.key < 0 ? "" : chosen.key, words: state.words ? 1 : 0 };
    timer = setTimeout(() => ask(key, parameters), DELAY);
    return undefined;
  };
  return { update, draw };
};
