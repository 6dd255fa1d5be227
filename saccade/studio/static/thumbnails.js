// Thumbnails of all heads, to choose from: one tab stop, arrow keys go from head to head.
import { at, decodeBytes, drawPixels, make, query, request } from "./studio.js";
import { drawThumbnail } from "./heat.js";
import { rove } from "./roving.js";

const SELECTOR = "button";
// Thumbnails of a row: rows of the same length, if there are any.
const columnsOf = (heads) => [6, 8, 7, 5].find((count) => heads % count === 0) ?? (heads < 5 ? 4 : Math.min(6, Math.ceil(heads / 2)));

// choose(map, head or null for the mean, add): a head was clicked. isAblated(map, head): whether it is removed.
export const headThumbnails = ({ state, prediction, choose, isAblated }) => {
  const pictures = new Map(); // by map
  const thumbnail = ({ name, title, queries, keys }, head) => {
    const { cells, rows, columns } = pictures.get(name);
    const canvas = make("canvas", {});
    const part = cells.subarray(head * rows * columns, (head + 1) * rows * columns);
    const axis = keys ?? queries;
    if (axis.kind === "grid") drawThumbnail(canvas, part, axis);
    else drawPixels(canvas, part, columns, 1);
    const button = make("button", { type: "button", className: "thumb" }, canvas);
    button.classList.toggle("ablated", isAblated(name, head));
    button.setAttribute("aria-label", `${title}, head ${head}`);
    button.title = `${title} \u00b7 head ${head} (Shift+click adds it)`;
    Object.assign(button.dataset, { map: name, head });
    button.onclick = (event) => choose(name, head, event.shiftKey);
    return button;
  };
  const mark = () => {
    for (const button of at("heads").querySelectorAll(SELECTOR)) {
      const { map, head } = button.dataset;
      const on = head === undefined ? !state.heads.length : state.heads.includes(Number(head));
      button.setAttribute("aria-pressed", String(on && map === state.map));
    }
    rove(at("heads"), SELECTOR);
  };
  const layer = (map) => {
    const { name, title, heads } = map;
    const mean = make("button", { type: "button", className: "quiet" }, heads > 1 ? "mean" : "show");
    mean.dataset.map = name;
    mean.setAttribute("aria-label", heads > 1 ? `${title}, mean over heads` : title);
    mean.onclick = () => choose(name, null);
    const buttons = pictures.has(name) ? Array.from({ length: heads }, (_, head) => thumbnail(map, head)) : [];
    const node = make("div", { className: "layer", title: name }, make("span", {}, title), mean, ...buttons);
    node.style.setProperty("--columns", columnsOf(heads));
    return node;
  };
  // The button with the focus keeps it, or that of its mean where there is no thumbnail yet.
  const keepFocus = (change) => {
    const { map, head } = at("heads").contains(document.activeElement) ? document.activeElement.dataset : {};
    change();
    mark();
    if (map === undefined || at("heads").contains(document.activeElement)) return;
    const buttons = [...at("heads").querySelectorAll(SELECTOR)].filter((button) => button.dataset.map === map);
    (buttons.find((button) => button.dataset.head === head) ?? buttons[0])?.focus();
  };
  const draw = () => keepFocus(() => at("heads").replaceChildren(...prediction().maps.map(layer)));
  // Layer by layer, that on screen first: the picture does not wait for them.
  const load = async () => {
    const shown = prediction();
    const { maps } = shown;
    pictures.clear();
    draw();
    const several = maps.filter(({ heads }) => heads > 1); // a map with one head is its own mean
    for (const map of several.sort((a, b) => (b.name === state.map) - (a.name === state.map))) {
      const [entry] = await request(`/api/look/${shown.id}/overview?${query({ map: map.name })}`);
      if (prediction() !== shown) return;
      pictures.set(map.name, { ...entry, cells: decodeBytes(entry.cells) });
      keepFocus(() => at("heads").children[maps.indexOf(map)].replaceWith(layer(map)));
    }
  };
  return { load, draw, mark };
};
