// Thumbnails of all heads, to choose from: one tab stop, arrow keys go from head to head.
import { at, decodeBytes, drawPixels, make, request } from "./studio.js";
import { drawThumbnail } from "./heat.js";
import { rove } from "./roving.js";

const SELECTOR = "button";

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
  const draw = () => {
    const focused = [...at("heads").querySelectorAll(SELECTOR)].indexOf(document.activeElement);
    at("heads").replaceChildren(...prediction().maps.map((map) => {
      const { name, title, heads } = map;
      const mean = make("button", { type: "button", className: "quiet" }, heads > 1 ? "mean" : "show");
      mean.dataset.map = name;
      mean.setAttribute("aria-label", heads > 1 ? `${title}, mean over heads` : title);
      mean.onclick = () => choose(name, null);
      const buttons = Array.from({ length: pictures.has(name) && heads > 1 ? heads : 0 }, (_, head) => thumbnail(map, head));
      return make("div", { className: "layer", title: name }, make("span", {}, title), mean, ...buttons);
    }));
    mark();
    if (focused >= 0) at("heads").querySelectorAll(SELECTOR)[focused]?.focus();
  };
  const load = async () => {
    pictures.clear();
    for (const entry of await request(`/api/look/${prediction().id}/overview`)) pictures.set(entry.name, { ...entry, cells: decodeBytes(entry.cells) });
    draw();
  };
  return { load, draw, mark };
};
