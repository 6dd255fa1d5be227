// Look: ask a model, then go through every layer and head of its answer.
import { ask, at, bytes, data, digits, make, numbers, pixels, query, remember, say, wordsOf } from "./common.js";
import { colourOf, keys, lines, SHOWN } from "./lines.js";
import { Matrix } from "./matrix.js";
import { forms, values } from "./options.js";
import { reasons } from "./why.js";

const state = { model: "", text: "", view: "matrix", map: "", heads: [], words: true, row: 0, column: 0, cell: 0, faint: null, offs: [] };
let look = null; // the answer that is looked at
let matrix = null;
const LONG = 64; // columns; of more, most weights are faint
const FRAME = 700; // milliseconds that a film rests on a token
let first = 0; // of the tokens that the line view shows
const small = new Map(); // pictures of heads

const map = () => look.maps.find((one) => one.name === state.map) ?? look.maps[0];
const joined = new WeakMap(); // the words of an axis, which may be thousands
const merged = (axis) => {
  if (!state.words) return axis.labels;
  if (!joined.has(axis)) joined.set(axis, wordsOf(axis));
  return joined.get(axis);
};
// The first piece of a word, which is what the model itself counts.
const piece = (row) => {
  const { words } = map().queries;
  if (!state.words || !words.length) return row;
  return words.indexOf([...new Set(words)][row]);
};
const labels = () => [merged(map().queries), merged(map().keys ?? map().queries)];
const fetchCells = (head) => async (top, bottom, left, right, step = 1) => {
  const how = { map: state.map, head: head ?? "mean", top, bottom, left, right, down: step, across: step, words: state.words ? 1 : 0 };
  return numbers(await ask(`/api/look/${look.id}/cells?${query(how)}`));
};
const restore = () => {
  const { model, text, view, map: name, row, column, words } = state;
  remember({ model, text, view, map: name, head: state.heads.join(","), row, column, words: words ? "" : "0", faint: state.faint === null ? "" : Number(state.faint), options: optionText() });
};
const optionText = () => Object.entries(values(at("options"))).map(([name, value]) => `${name}=${value}`).join("\n");

// Asking.
const models = () => {
  at("model").replaceChildren(...data.models.map((name) => new Option(name)));
  if (data.asked.model && data.models.includes(data.asked.model)) at("model").value = data.asked.model;
  at("model").onchange = () => describe();
};
const describe = async () => {
  if (!at("model").value) return;
  try {
    const found = await ask(`/api/models/${encodeURIComponent(at("model").value)}/options`);
    at("write").hidden = !found.writes;
    at("options").replaceChildren(...forms(found.options.filter((one) => one.name !== "maps")));
    at("examples").replaceChildren(new Option("choose\u2026", ""), ...found.examples.map((text) => new Option(text.slice(0, 80), text)));
    at("examples").parentElement.hidden = !found.examples.length;
    if (!at("text").value && found.examples.length) at("text").value = found.examples[0];
    say(at("said"));
  } catch (error) {
    say(at("said"), error);
  }
};
const busy = (on) => {
  at("go").disabled = at("write").disabled = on;
  at("go").textContent = on ? "Looking\u2026" : "Look";
};
const go = async (event) => {
  event?.preventDefault();
  if (!at("model").value) return;
  busy(true);
  Object.assign(state, { model: at("model").value, text: at("text").value, offs: [] });
  try {
    const began = performance.now();
    look = await ask("/api/look", { model: state.model, text: state.text, options: values(at("options")) });
    say(at("said"));
    show();
    await overview();
    document.body.dataset.shown = String(Math.round(performance.now() - began));
  } catch (error) {
    say(at("said"), error);
  } finally {
    busy(false);
  }
};

const show = () => {
  at("empty").hidden = true;
  at("seen").hidden = false;
  at("answer").textContent = look.continues ? look.input + look.output : look.output;
  at("scores").replaceChildren(...Object.entries(look.scores).slice(0, 12).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, digits(value, 4)))));
  if (!look.maps.length) {
    at("view").replaceChildren(make("p", { className: "soft" }, "This model has no attention to look at."));
    at("heads").replaceChildren();
    return;
  }
  if (!look.maps.some((one) => one.name === state.map)) [state.map, state.heads] = [look.maps[0].name, []];
  state.heads = state.heads.filter((head) => head < map().heads);
  render();
  why.reset();
};

// Heads and layers in small.
const overview = async () => {
  const found = await ask(`/api/look/${look.id}/overview`);
  small.clear();
  for (const one of found) small.set(one.name, { ...one, cells: bytes(one.cells) });
  heads();
};
const heads = () => {
  const groups = look.maps.map((one) => {
    const mean = make("button", { type: "button", className: "quiet" }, one.heads > 1 ? "mean" : "show");
    mean.dataset.map = one.name;
    mean.setAttribute("aria-label", `${one.name}, mean of the heads`);
    mean.onclick = () => choose(one.name, null);
    const picture = small.get(one.name);
    const pictures = Array.from({ length: picture && one.heads > 1 ? one.heads : 0 }, (_, head) => {
      const canvas = make("canvas", {});
      const size = picture.rows * picture.columns;
      pixels(canvas, picture.cells.subarray(head * size, (head + 1) * size), picture.columns, 1);
      const button = make("button", { type: "button", className: "thumb" }, canvas);
      button.classList.toggle("off", state.offs.some((off) => off.map === one.name && off.head === head && off.query === undefined));
      button.setAttribute("aria-label", `${one.name}, head ${head}`);
      button.title = `${one.name}, head ${head} (Shift adds)`;
      Object.assign(button.dataset, { map: one.name, head });
      button.onclick = (event) => choose(one.name, head, event.shiftKey);
      return button;
    });
    return make("div", { className: "layer" }, make("span", {}, one.name), mean, ...pictures);
  });
  at("heads").replaceChildren(...groups);
  press();
};
// Which of them are shown; the pictures stay as they are.
const press = () => {
  for (const button of at("heads").querySelectorAll("button")) {
    const { map: name, head } = button.dataset;
    const on = head === undefined ? !state.heads.length : state.heads.includes(Number(head));
    button.setAttribute("aria-pressed", String(on && name === state.map));
  }
};
const choose = (name, head, add = false) => {
  if (name !== state.map) [state.row, state.column, first] = [0, 0, 0];
  if (head === null) state.heads = [];
  else if (add && name === state.map) state.heads = state.heads.includes(head) ? state.heads.filter((one) => one !== head) : [...state.heads, head];
  else state.heads = [head];
  state.map = name;
  const began = performance.now();
  let drawn = false;
  render(() => {
    if (drawn) return;
    drawn = true;
    document.body.dataset.switched = String(Math.round(performance.now() - began));
    why.changed(); // after the picture, which must not wait for it
  });
  press();
};

// The three views.
const render = (done) => {
  restore();
  matrix?.close();
  matrix = null;
  const [rows, columns] = labels();
  [state.row, state.column] = [Math.min(state.row, rows.length - 1), Math.min(state.column, columns.length - 1)];
  at("which").textContent = `${state.map}${state.heads.length ? `, head ${state.heads.join(", ")}` : map().heads > 1 ? `, mean of ${map().heads} heads` : ""}`;
  for (const tab of document.querySelectorAll("[data-view]")) tab.setAttribute("aria-selected", String(tab.dataset.view === state.view));
  at("cell").parentElement.hidden = at("faint").parentElement.hidden = state.view !== "matrix";
  const faint = at("faint").checked = state.faint ?? columns.length > LONG;
  at("steps").href = `/steps?${query({ model: state.model, text: state.text, map: state.map, head: state.heads[0] ?? 0, query: piece(state.row), options: optionText() })}`;
  pixels(at("scale"), Array.from({ length: 64 }, (_, i) => (faint && state.view === "matrix" ? Math.sqrt(i / 63) : i / 63)), 64);
  exports();
  ({ matrix: showMatrix, lines: showLines, token: showToken })[state.view](rows, columns, done);
};
const showMatrix = (rows, columns, done) => {
  const head = state.heads.at(-1);
  matrix = new Matrix({
    rows, columns, cell: state.cell, faint: at("faint").checked,
    fetch: fetchCells(head),
    whole: () => {
      at("most").textContent = digits(matrix?.most ?? 1);
      done?.();
      document.body.dataset.drawn = String(performance.now());
    },
    follow: (row, column, pinned) => {
      [state.row, state.column] = [row, column];
      const weight = matrix.weight(row, column);
      told(rows[row], [[columns[column], weight]], pinned);
      if (pinned) restore();
    },
  });
  matrix.at = [state.row, state.column];
  at("view").replaceChildren(matrix.node);
  matrix.layout(); // at once: the browser would tell its width with the next frame
  at("told").textContent = `${rows.length} tokens look at ${columns.length}`;
};
const told = (row, pairs, pinned) => {
  const line = [make("b", {}, make("bdi", {}, row)), " \u2190 "];
  pairs.forEach(([label, weight], i) => line.push(i ? ", " : "", make("bdi", {}, label), ` ${digits(weight, 4)}`));
  at("told").replaceChildren(...line, pinned ? make("small", {}, "  pinned") : "");
};
const showLines = async (rows, columns, done) => {
  const count = Math.min(SHOWN, Math.max(rows.length, columns.length));
  first = Math.min(first, Math.max(0, Math.max(rows.length, columns.length) - count));
  const [top, bottom] = [Math.min(first, rows.length), Math.min(first + count, rows.length)];
  const [left, right] = [Math.min(first, columns.length), Math.min(first + count, columns.length)];
  const chosen = state.heads.length ? state.heads : [null];
  try {
    const found = await Promise.all(chosen.map(async (head, i) => ({
      name: head === null ? "mean" : `head ${head}`, colour: colourOf(i), weights: await fetchCells(head)(top, bottom, left, right),
    })));
    const draw = (row) => {
      const picture = lines({
        rows: rows.slice(top, bottom), columns: columns.slice(left, right), heads: found, chosen: row,
        follow: (i, pin) => {
          state.row = top + i;
          if (pin) restore();
          const weights = [...found[0].weights.subarray(i * (right - left), (i + 1) * (right - left))];
          const best = weights.map((weight, c) => [columns[left + c], weight]).sort((one, two) => two[1] - one[1]).slice(0, 5);
          told(rows[state.row], best, pin);
          if (row !== i) draw(i);
        },
      });
      at("view").replaceChildren(...pager(Math.max(rows.length, columns.length), count), make("div", { className: "row" }, ...keys(found)), picture);
    };
    draw(-1);
    done?.();
  } catch (error) {
    say(at("said"), error);
  }
};
const pager = (total, count) => {
  if (total <= count) return [];
  const slider = make("input", { type: "range", min: 0, max: total - count, value: first });
  slider.setAttribute("aria-label", "first token shown");
  slider.onchange = () => {
    first = Number(slider.value);
    render();
  };
  return [slider];
};
const showToken = async (rows, columns, done) => {
  const strip = (texts, act, weights, most) => make("div", { className: "strip" }, ...texts.slice(0, 4096).map((text, i) => {
    const token = make("button", { type: "button", className: "token" }, make("span", { dir: "auto" }, text), make("small", {}));
    if (weights) {
      token.style.setProperty("--share", (0.65 * weights[i]) / most);
      if (weights[i] >= 0.005) token.lastChild.textContent = digits(weights[i]);
    }
    if (act ? i === state.row : weights[i] === most) token.classList.add("on");
    if (act) token.onclick = () => {
      stop();
      state.row = i;
      render();
    };
    return token;
  }));
  try {
    const weights = await fetchCells(state.heads.at(-1))(state.row, state.row + 1, 0, columns.length);
    const most = Math.max(...weights, 1e-6);
    at("view").replaceChildren(make("h3", {}, "This token"), strip(rows, true), make("h3", {}, "looks at"), strip(columns, false, weights, most));
    const best = [...weights].map((weight, i) => [columns[i], weight]).sort((one, two) => two[1] - one[1]).slice(0, 5);
    told(rows[state.row], best, true);
    done?.();
  } catch (error) {
    say(at("said"), error);
  }
};

// The gaze as a film: token by token, what each looks at most.
let film = 0;
const stop = () => {
  clearInterval(film);
  film = 0;
  at("play").textContent = "Play";
  at("play").setAttribute("aria-pressed", "false");
};
const play = () => {
  if (film) return stop();
  Object.assign(state, { view: "token", row: state.row + 1 < labels()[0].length ? state.row : 0 });
  render();
  film = setInterval(() => {
    if (state.view !== "token" || state.row + 1 >= labels()[0].length) return stop();
    state.row += 1;
    render();
  }, FRAME);
  at("play").textContent = "Pause";
  at("play").setAttribute("aria-pressed", "true");
};

// The picture on screen as a file.
const exports = () => {
  const head = state.heads.at(-1) ?? "mean";
  const where = (kind) => `/api/look/${look.id}/export.${kind}?${query({ map: state.map, head, words: state.words ? 1 : 0 })}`;
  at("export").replaceChildren("Save ", ...["svg", "png", "html", "json"].map((kind) =>
    make("a", { href: where(kind), download: `attention.${kind}` }, kind.toUpperCase())));
};

// Tokens one by one, each with what it was written from.
const write = async () => {
  busy(true);
  at("empty").hidden = true;
  const place = make("section", { className: "card" }, make("h2", {}, "Writing"), make("div", { className: "strip", id: "writing" }));
  at("said").replaceChildren(place);
  const strip = place.lastChild;
  const add = (label, fresh) => strip.append(make("span", { className: `token${fresh ? " fade" : ""}` }, make("span", { dir: "auto" }, label), make("small", {})));
  try {
    const body = JSON.stringify({ model: at("model").value, text: at("text").value, options: values(at("options")), map: state.map });
    const answer = await fetch("/api/generate", { method: "POST", headers: { "content-type": "application/json" }, body });
    if (!answer.ok) throw new Error((await answer.json()).error);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let [rest, text] = ["", ""];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const all = (rest + value).split("\n");
      rest = all.pop();
      for (const line of all) {
        const event = JSON.parse(line);
        if (event.error) throw new Error(event.error);
        if (event.prompt) {
          strip.given = event.prompt.length;
          event.prompt.forEach((label) => add(label, false));
        }
        else {
          text += event.text;
          shade(strip, event.row);
          if (event.token) add(event.token, true);
        }
      }
    }
    if (look?.continues ?? true) at("text").value += text;
    busy(false);
  } catch (error) {
    say(at("said"), error);
    busy(false);
  }
};
const shade = (strip, row) => {
  const most = Math.max(...row, 1e-6);
  const offset = row.length === strip.given ? 0 : strip.children.length - row.length; // the text itself, or a source
  [...strip.children].forEach((token, i) => token.style.setProperty("--share", (0.65 * (row[i - offset] ?? 0)) / most));
};

const why = reasons({
  state,
  look: () => look,
  changed: () => heads(),
  failed: (error) => say(at("said"), error),
});
for (const tab of document.querySelectorAll("[data-view]")) tab.onclick = () => {
  state.view = tab.dataset.view;
  render();
};
at("words").onchange = () => {
  Object.assign(state, { words: at("words").checked, row: 0, column: 0 });
  render();
};
at("faint").onchange = () => {
  state.faint = at("faint").checked;
  render();
};
at("cell").onchange = () => {
  state.cell = Number(at("cell").value);
  render();
};
at("examples").onchange = () => {
  if (at("examples").value) at("text").value = at("examples").value;
};
at("form").onsubmit = go;
at("write").onclick = write;
at("play").onclick = play;
at("text").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(event);
};
addEventListener("theme", () => look?.maps.length && (render(), heads()));

// A link brings the same view back.
const begin = async () => {
  models();
  const { text, view, map: name, head, row, column, words, faint, options } = data.asked;
  at("text").value = text ?? "";
  // Before anything is waited for: whoever is quick may have asked already.
  Object.assign(state, { view: ["matrix", "lines", "token"].includes(view) ? view : "matrix", map: name ?? "", row: Number(row) || 0, column: Number(column) || 0 });
  state.heads = (head ?? "").split(",").filter((one) => /^\d+$/.test(one)).map(Number);
  state.words = at("words").checked = words !== "0";
  state.faint = faint ? faint === "1" : null;
  await describe();
  for (const line of (options ?? "").split("\n").filter(Boolean)) {
    const [key, ...value] = line.split("=");
    const field = at("options").querySelector(`[name="${CSS.escape(key)}"]`);
    if (field) field.value = value.join("=");
  }
  if (text !== undefined) await go();
};
begin();
