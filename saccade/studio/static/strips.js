// The tokens of a prediction as buttons: a click chooses the query, a second one the key; all maps keep them.
// The keys are tinted by the attention of the query, so that it can be read as a text.
import { at, make, showError } from "./studio.js";
import { rove } from "./roving.js";
import { numberOn, token } from "./views/tokens.js";

const MOST = 512; // tokens of a strip; of a longer text the matrix is clicked

// pin(query, key): choose them; a key of -1 is none. weights(query): a promise of its weights in the head on screen.
export const tokenStrips = ({ state, pin, weights }) => {
  let shown = []; // the labels on screen
  let latest = 0; // of several requests only the last is shown

  const choose = (role, i) => {
    if (role === "query") pin(i, state.pinned ? state.column : -1);
    else if (role === "key") pin(state.row, i);
    else if (state.pinned && state.column < 0) pin(state.row, i);
    else pin(i);
  };
  const strip = (labels, role, title) => {
    const buttons = labels.map((label, i) => token(label, { select: () => choose(role, i) }));
    const list = make("div", { className: "strip" }, ...buttons);
    list.dataset.role = role;
    list.setAttribute("role", "group");
    list.setAttribute("aria-label", title);
    return make("div", { className: "tokens" }, make("span", { className: "soft" }, title), list);
  };
  const mark = () => {
    for (const list of at("tokens").querySelectorAll(".strip")) {
      [...list.children].forEach((button, i) => {
        const query = list.dataset.role !== "key" && state.pinned && i === state.row;
        const key = list.dataset.role !== "query" && state.pinned && i === state.column;
        if (button.classList.contains("on") !== query) button.classList.toggle("on", query);
        if (button.classList.contains("key-on") !== key) button.classList.toggle("key-on", key);
        button.setAttribute("aria-pressed", String(query || key));
      });
    }
  };
  const tint = async () => {
    const number = ++latest;
    const list = [...at("tokens").querySelectorAll(".strip")].at(-1);
    if (!list) return;
    try {
      const values = state.pinned ? await weights(state.row) : null;
      if (number !== latest) return;
      const largest = values ? Math.max(...values, 1e-6) : 1;
      [...list.children].forEach((button, i) => {
        button.style.setProperty("--opacity", values ? values[i] / largest : 0);
        button.lastChild.textContent = values && values[i] >= 0.05 ? numberOn(values[i]) : "";
      });
      list.dataset.tinted = values ? String(state.row) : "";
    } catch (error) {
      if (number === latest) showError(error);
    }
  };
  // axes: queries and keys of the map; only tokens have a strip.
  const show = (axes, [rows, columns]) => {
    const wanted = axes.length && axes[0].kind === "tokens" && axes[1].kind === "tokens" && Math.max(rows.length, columns.length) <= MOST ? (axes[0] === axes[1] ? [rows] : [rows, columns]) : [];
    if (wanted.length !== shown.length || wanted.some((labels, i) => labels !== shown[i])) {
      shown = wanted;
      const titles = wanted.length === 1 ? [["", "Click a word (query) to see what it attends to, then another (key)"]] : [["query", "Query"], ["key", "Key"]];
      at("tokens").replaceChildren(...wanted.map((labels, i) => strip(labels, ...titles[i])));
      for (const list of at("tokens").querySelectorAll(".strip")) rove(list, ".token");
    }
    update();
  };
  const update = () => {
    mark();
    tint();
  };
  return { show, mark: update };
};
