// What is watched of one continuation: the bars of a step, and the attention of a layer and head.
import { at, digits, drawPixels, make, showError } from "./studio.js";
import { bars } from "./bars.js";
import { settingsText } from "./branches.js";
import { distribution, fetchRows, steer } from "./generation.js";
import { GrowingMatrix } from "./growing.js";

const BEFORE = 70; // characters of text before the token
const MEAN = -1;
const same = (one, other) => Object.keys(other).every((name) => one?.[name] === other[name]);
const quoted = (label) => `\u201c${label}\u201d`;

// state: { entry, step, follow }; settings(): the sliders; actions: pick(entry, step), take(entry, step, id, label); all(): every continuation.
export const watching = ({ state, settings, actions, all, changed }) => {
  const view = { map: "", head: MEAN };
  let asked = 0;

  // The bars.
  const showBars = (step, line, note) => {
    const rows = () => [...at("bars").querySelectorAll(".bar-row")];
    const focused = rows().indexOf(document.activeElement);
    at("bars").replaceChildren(...(line.candidates.length ? [bars(line.candidates, step.id, step.given, (id, label) => actions.take(state.entry, state.step, id, label))] : []));
    if (focused >= 0) rows()[Math.min(focused, rows().length - 1)]?.focus();
    at("bars").dataset.step = String(state.step);
    at("kept").textContent = line.candidates.length
      ? `${line.kept.toLocaleString("en")} of ${line.vocabulary.toLocaleString("en")} tokens can be chosen${note}. Full bar: the probability it is chosen with; outline: the model's own.`
      : "A beam search compares whole texts: this step has no distribution of its own.";
  };
  const showStep = async () => {
    const { entry } = state;
    const step = entry?.steps[state.step];
    at("step-title").textContent = step ? `Next token ${state.step + 1} of ${entry.key}` : "Next token";
    for (const [id, move] of [["previous", -1], ["next", 1]]) at(id).disabled = !entry?.steps[state.step + move];
    at("newest").setAttribute("aria-pressed", String(state.follow));
    at("resample").disabled = !step || !entry.id || !entry.canProceed;
    at("resample").hidden = !entry?.canProceed;
    if (!step) return at("bars").replaceChildren();
    const text = (entry.text ?? "") + entry.steps.slice(0, state.step).map(({ text: part }) => part).join("");
    at("before").replaceChildren(text.length > BEFORE ? `\u2026${text.slice(-BEFORE)}` : text || "(the beginning)", make("b", {}, " \u2588"));
    const now = settings();
    if (same(step.settings, now) || !step.candidates.length) {
      asked++;
      showError(null, "step-message");
      return showBars(step, step, "");
    }
    const number = ++asked;
    try {
      const line = await distribution(entry.id, state.step, now);
      if (number !== asked) return undefined;
      showError(null, "step-message");
      showBars(step, line, ` with ${settingsText(now)}; this token was chosen with ${settingsText(step.settings)}`);
    } catch (error) {
      if (number !== asked) return undefined;
      showBars(step, step, "");
      showError(error, "step-message");
    }
    return undefined;
  };

  // The matrix.
  const labels = (entry) => [...entry.prompt, ...entry.steps.map(({ token }) => token)];
  const pointed = (row, column) => {
    const { entry } = state;
    const step = entry?.steps[state.step];
    if (!step || !entry.maps.length) return;
    const at0 = row < 0 ? entry.first + state.step : row;
    const key = row < 0 && at0 === matrix.cellRow ? matrix.column : column; // the cell that was chosen, or that is pointed at
    const query = matrix.queries[at0] ?? "";
    const values = entry.rows[at0];
    const led = at0 >= entry.first && entry.steps[at0 - entry.first] ? `, which led to ${quoted(entry.steps[at0 - entry.first].token)}` : "";
    if (!values) at("status").textContent = "";
    else if (key >= 0) at("status").textContent = `Query ${quoted(query)}${led} \u2192 key ${quoted(matrix.keys[key])}: ${digits(matrix.weight(at0, key), 4)}${matrix.hidden && key ? `, drawn as ${digits(matrix.drawn(at0, key), 4)}` : ""}`;
    else {
      const best = values.reduce((top, value, i) => (matrix.drawn(at0, i) > matrix.drawn(at0, top) ? i : top), matrix.hidden ? 1 : 0);
      at("status").textContent = `Query ${quoted(query)}${led}: most on ${quoted(matrix.keys[best] ?? "")}, ${digits(values[best] ?? 0, 4)}`;
    }
  };
  const matrix = new GrowingMatrix({
    select: (row, column) => {
      const { entry } = state;
      [matrix.cellRow, matrix.column] = [row, column];
      if (row >= entry.first) actions.pick(entry, row - entry.first);
      else matrix.update({ selected: row });
      pointed(row, column);
    },
    point: pointed,
  });
  matrix.drawnLargest = (largest) => { at("largest").textContent = digits(largest); };
  at("matrix").append(matrix.node);
  const showMatrix = () => {
    const { entry } = state;
    at("attention").hidden = !entry?.maps?.length;
    if (!entry?.maps?.length) return;
    const count = entry.first + entry.steps.length;
    const [queries, keys] = entry.self
      ? [labels(entry).slice(0, count), labels(entry).slice(0, count)]
      : [[...Array(entry.first).fill(""), ...entry.steps.map(({ token }) => token)], entry.prompt];
    at("sink-field").hidden = !entry.self;
    matrix.update({ rows: entry.rows, queries, keys, start: entry.self ? 0 : entry.first, selected: entry.first + state.step, hidden: entry.self && at("sink").checked, sqrt: at("sqrt").checked });
    at("sink-note").hidden = !matrix.hidden;
    at("sink-note").textContent = matrix.hidden ? `The column of the first token, ${quoted(keys[0])}, is hidden: in the picture, the other weights of each row are divided by what remains. Numbers below the pointer are the real weights.` : "";
    pointed(-1, -1);
  };
  const drawScale = () => drawPixels(at("scale"), Float32Array.from({ length: 64 }, (_, i) => (at("sqrt").checked ? Math.sqrt(i / 63) : i / 63)), 64);

  // Fetch the rows that did not come with the tokens.
  const fill = async (entry) => {
    if (!entry.maps?.length || entry.filling) return;
    entry.filling = true;
    try {
      for (;;) {
        const [first, last, chosen] = [entry.self ? 0 : entry.first, entry.first + entry.steps.length, `${view.map} ${view.head}`];
        let from = first;
        while (from < last && entry.rows[from]) from++;
        let to = from;
        while (to < last && !entry.rows[to]) to++;
        if (from >= last) return;
        const rows = await fetchRows(entry.id, view.map, view.head, from, to);
        if (chosen !== `${view.map} ${view.head}`) continue;
        if (!rows.size) return;
        for (const [row, values] of rows) entry.rows[row] = entry.self ? values.slice(0, row + 1) : values;
        if (entry === state.entry) showMatrix();
      }
    } catch (error) {
      showError(error, "step-message");
    } finally {
      entry.filling = false;
    }
  };

  // Layers and heads.
  const listHeads = (entry) => {
    const map = entry.maps.find(({ name }) => name === view.map);
    at("head").replaceChildren(new Option("mean of all", MEAN), ...Array.from({ length: map.heads }, (_, i) => new Option(i)));
    if (view.head >= map.heads) view.head = MEAN;
    at("head").value = String(view.head);
  };
  const describe = (entry) => {
    if (!entry.maps.length) return;
    if (!entry.maps.some(({ name }) => name === view.map)) view.map = entry.maps.at(-1).name;
    at("layer").replaceChildren(...entry.maps.map(({ name, title }) => new Option(title, name)));
    at("layer").value = view.map;
    listHeads(entry);
  };
  const choose = async () => {
    [view.map, view.head] = [at("layer").value, Number(at("head").value)];
    if (state.entry) listHeads(state.entry);
    for (const entry of all()) entry.rows = [];
    changed();
    showMatrix();
    try {
      await Promise.all(all().filter((entry) => entry.running && entry.id).map((entry) => steer(entry.id, view)));
    } catch (error) {
      showError(error, "step-message");
    }
    if (state.entry) await fill(state.entry);
  };
  at("layer").onchange = at("head").onchange = choose;
  at("sink").onchange = at("sqrt").onchange = () => {
    drawScale();
    changed();
    showMatrix();
  };
  addEventListener("theme", () => {
    drawScale();
    showMatrix();
  });
  drawScale();
  return { view, showStep, showMatrix, fill, describe };
};
