// The Compare page: two inputs, two checkpoints or two models, and what differs between the attention of A and of B.
import { markChanges, showChanges } from "./changes.js";
import { drawDivergingScale, signed } from "./diverging.js";
import { GAP, pairName, showPairs } from "./pairs.js";
import { followProgress } from "./progress.js";
import { describePrediction, distinctNames, sideName, Sides } from "./sides.js";
import { at, data, digits, drawPixels, make, number, query, request, showError, table, updateAddress } from "./studio.js";

const RANKED = 20;
const PATIENCE = 1500; // milliseconds until a long comparison is shown before it is known what changed most
// map, head: of A; other, otherHead: of B; head null is the mean. row, column: the selected cell of the aligned labels.
const state = { map: "", head: null, other: "", otherHead: null, words: true, special: true, row: 0, column: 0, pinned: false };
let shown = null; // the predictions on screen: { first, second, maps, pairs }
let pairs = null; // the matrices
let axes = null; // the aligned labels of the maps
let latest = 0; // of several requests only the last is shown

const sides = new Sides(data.models, (event) => submit(event));
const titles = () => [state.map, state.other].map((name, i) => shown.maps[i].find((map) => map.name === name));
const sameMaps = () => JSON.stringify(shown.maps[0]) === JSON.stringify(shown.maps[1]);
const updateLink = (push = false) => updateAddress({
  ...sides.link(), map: state.map, head: state.head ?? "", other: state.other === state.map ? "" : state.other,
  other_head: state.otherHead === state.head ? "" : state.otherHead ?? "mean", words: state.words ? "" : "0", special: state.special ? "" : "0",
  row: state.pinned ? state.row : "", column: state.pinned ? state.column : "",
}, { push, saved: { ids: [shown.first.id, shown.second.id] } });

const busy = (text) => {
  at("submit").disabled = at("swap").disabled = Boolean(text);
  at("submit").textContent = text || "Compare";
};
const submit = async (event, push = true) => {
  event?.preventDefault();
  if (!sides.complete) return;
  const asked = ++latest;
  showError();
  busy("Predicting\u2026");
  try {
    const start = performance.now();
    const answers = await predict(sides.requests());
    if (answers && asked === latest) {
      await show(answers, push);
      document.body.dataset.shown = String(Math.round(performance.now() - start));
    }
  } catch (error) {
    showError(error);
  } finally {
    busy("");
  }
};
// Both predictions; an error is told beside the side that caused it.
const predict = async (requests) => {
  const answers = await Promise.allSettled(requests.map((body) => request("/api/look", body)));
  answers.forEach(({ reason }, i) => reason && showError(reason, `error-${"ab"[i]}`));
  return answers.some(({ reason }) => reason) ? null : answers.map(({ value }, i) => ({ ...value, asked: requests[i] }));
};
const show = async ([first, second], push) => {
  const described = await request(`/api/compare/${first.id}/${second.id}/maps`);
  if (push && shown) state.pinned = false; // of other words
  shown = { first, second, ...described };
  at("empty").hidden = true;
  at("results").hidden = false;
  showPredictions();
  if (!described.maps.every((maps) => maps.length)) throw new Error("A model without attention cannot be compared: choose another one.");
  const comparing = loadChanges();
  const chosen = described.maps[0].some(({ name }) => name === state.map);
  const changes = chosen ? null : await Promise.race([comparing, new Promise((resolve) => { setTimeout(resolve, PATIENCE, null); })]);
  checkMaps(changes);
  updateLink(push);
  render();
  await comparing;
};
// Keep the layers and heads that are there; at first those that changed most.
const checkMaps = (changes) => {
  const has = (side, name) => shown.maps[side].some((map) => map.name === name);
  if (!has(0, state.map)) {
    const top = changes?.ranked[0];
    const [map, other] = top?.maps ?? shown.pairs[0] ?? shown.maps.map(([one]) => one.name);
    Object.assign(state, { map, other, head: top?.head ?? null, otherHead: top?.head ?? null });
    Object.assign(state, top ? { row: top.query, column: top.key, pinned: true } : { row: 0, column: 0, pinned: false });
  }
  if (!has(1, state.other)) state.other = partner(state.map);
  const [one, other] = titles();
  if (state.head !== null && state.head >= one.heads) state.head = null;
  if (state.otherHead !== null && state.otherHead >= other.heads) state.otherHead = null;
};
const partner = (name) => (shown.pairs.find(([one]) => one === name) ?? [name, shown.maps[1][0].name])[1];

// Predictions of both, and the scores that both have.
const showPredictions = () => {
  const { first, second } = shown;
  const names = [...new Set([...Object.keys(first.scores), ...Object.keys(second.scores)])].slice(0, 12);
  const rows = names.map((name) => {
    const [a, b] = [first.scores[name], second.scores[name]];
    const difference = Number.isFinite(a) && Number.isFinite(b) ? (b < a ? "\u2212" : b > a ? "+" : "") + number(Math.abs(b - a), 3) : GAP;
    return [name, ...[a, b].map((value) => (value === undefined ? GAP : number(value, 4))), difference];
  });
  const list = make("dl", { className: "pairs" }, ...[first, second].flatMap((side, i) => [
    make("dt", {}, make("span", { className: `letter ${"ab"[i]}` }, "AB"[i])),
    make("dd", { dir: "auto" }, ...describePrediction(sideName(sides.mode, side.asked), side)),
  ]));
  const cosine = cosineOf(first.output.vector, second.output.vector);
  at("predictions").replaceChildren(list,
    ...(cosine === null ? [] : [make("p", {}, `Cosine of the two vectors: ${digits(cosine, 4)}`)]),
    ...(rows.length ? [table(["Score", "A", "B", "B \u2212 A"], rows)] : []));
  const sideNames = [first, second].map(({ asked }) => sideName(sides.mode, asked));
  distinctNames(sideNames).forEach((text, i) => Object.assign(at(`title-${"ab"[i]}`), { textContent: text, title: sideNames[i] }));
};
const cosineOf = (a, b) => {
  if (!a || !b || a.length !== b.length) return null;
  const product = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
};

// What changed most, over all layers and heads.
const loadChanges = async () => {
  const { first, second } = shown;
  if (!shown.pairs.length) {
    at("changes").replaceChildren(make("p", { className: "soft" }, "The models have no layers over the same kind of input; choose a layer of each."));
    return null;
  }
  at("changes").replaceChildren(make("p", { className: "soft" }, "Comparing all heads\u2026"));
  const progress = followProgress((fraction) => busy(`Comparing\u2026 ${Math.round(100 * fraction)}%`));
  try {
    const parameters = { words: state.words ? 1 : 0, special: state.special ? 1 : 0, count: RANKED, ticket: progress.ticket };
    const changes = await request(`/api/compare/${first.id}/${second.id}/changes?${query(parameters)}`);
    if (shown.first !== first || shown.second !== second) return null;
    showChanges(at("changes"), changes, open);
    markChanges(at("changes"), state);
    return changes;
  } finally {
    progress.end();
  }
};
const open = ([map, other], head, row = null, column = null) => {
  Object.assign(state, { map, other, head, otherHead: head });
  if (row !== null) Object.assign(state, { row, column, pinned: true });
  updateLink(true);
  render();
};

// The matrices of the chosen layer and head.
const render = async () => {
  const asked = ++latest;
  const { first, second } = shown;
  const own = !sameMaps();
  at("status").textContent = "Loading\u2026"; // no weights of the head before
  at("others").hidden = !own;
  fill("map", shown.maps[0].map(({ name, title }) => [name, title]), state.map);
  fill("other", shown.maps[1].map(({ name, title }) => [name, title]), state.other);
  ["head", "other-head"].forEach((id, i) => {
    const { heads } = titles()[i];
    const numbers = Array.from({ length: heads }, (_, head) => [String(head), String(head)]);
    fill(id, [["", `mean of ${heads}`], ...numbers], String([state.head, state.otherHead][i] ?? ""));
  });
  markChanges(at("changes"), state);
  try {
    const { map, other, words } = state;
    axes = await request(`/api/compare/${first.id}/${second.id}/axes?${query({ map, other, words: words ? 1 : 0 })}`);
    if (asked !== latest) return;
    draw();
  } catch (error) {
    if (asked === latest) showError(error);
  }
};
const fill = (id, options, value) => {
  at(id).replaceChildren(...options.map(([name, text]) => new Option(text, name)));
  at(id).value = value;
};
const draw = () => {
  pairs?.close();
  const [rows, columns] = [axes.queries.length, axes.keys.length];
  if (state.row >= rows || state.column >= columns) Object.assign(state, { row: 0, column: 0, pinned: false });
  at("gaps").hidden = ![...axes.queries, ...axes.keys].some((pair) => pair.includes(null));
  drawScales();
  const { map, head, other, otherHead, words } = state;
  at("download").href = `/api/compare/${shown.first.id}/${shown.second.id}/difference.svg?${query({ map, other, head: head ?? "mean", other_head: otherHead ?? "mean", words: words ? 1 : 0 })}`;
  at("status").textContent = `${rows} queries (rows), ${columns} keys (columns): hover over a cell, click to pin it, arrow keys move the selection`;
  pairs = showPairs({
    axes, shown: { first: shown.first.id, second: shown.second.id, ...state },
    places: ["matrix-a", "matrix-b", "matrix-difference"].map(at),
    selected: [state.row, state.column], pinned: state.pinned,
    select: (row, column, pinned, values) => {
      const changed = pinned !== state.pinned || (pinned && (row !== state.row || column !== state.column));
      Object.assign(state, { row, column, pinned });
      showStatus(values);
      if (!changed) return;
      updateLink();
      markChanges(at("changes"), state);
    },
    scaled: ({ weight, difference }) => {
      at("largest").textContent = number(weight, 2);
      [at("least").textContent, at("most").textContent] = [signed(-difference), signed(difference)];
    },
    drawn: () => { document.body.dataset.drawn = String(performance.now()); },
  });
};
const drawScales = () => {
  drawPixels(at("scale"), Array.from({ length: 64 }, (_, i) => i / 63), 64);
  drawDivergingScale(at("scale-difference"));
};
const showStatus = ([a, b, difference]) => {
  const [row, column] = [axes.queries[state.row], axes.keys[state.column]];
  const name = (labels) => make("bdi", {}, pairName(labels));
  const missing = (side) => row[side] === null || column[side] === null;
  const value = (weight, side) => (missing(side) ? "none" : digits(weight, 4));
  at("status").replaceChildren(make("b", {}, name(row)), " \u2192 ", make("b", {}, name(column)), `:  A ${value(a, 0)}, B ${value(b, 1)}`,
    missing(0) || missing(1) ? " (a gap: only one of them has it)" : `, difference ${signed(difference, 4)}`,
    state.pinned ? make("small", {}, "  pinned") : "");
};

// Controls.
const choose = (values) => {
  Object.assign(state, values);
  checkMaps(null);
  updateLink(true);
  render();
};
const headOf = (id) => (at(id).value === "" ? null : Number(at(id).value));
at("map").onchange = () => choose({ map: at("map").value, other: partner(at("map").value) });
at("other").onchange = () => choose({ other: at("other").value });
at("head").onchange = () => {
  const head = headOf("head");
  choose({ head, ...(sameMaps() || head === null || head < titles()[1].heads ? { otherHead: head } : {}) });
};
at("other-head").onchange = () => choose({ otherHead: headOf("other-head") });
const again = async (values) => {
  Object.assign(state, values);
  try {
    await loadChanges();
    updateLink();
    await render();
  } catch (error) {
    showError(error);
  } finally {
    busy("");
  }
};
at("words").onchange = () => again({ words: at("words").checked, row: 0, column: 0, pinned: false });
at("special").onchange = () => again({ special: !at("special").checked });
at("form").onsubmit = submit;
addEventListener("theme", () => axes && draw());

// A link restores the same view, and so do Back and Forward.
const readState = ({ map = "", head, other, other_head: otherHead, words, special, row, column }) => {
  const numberOr = (text, value) => (/^\d+$/.test(text ?? "") ? Number(text) : value);
  Object.assign(state, { map, other: other ?? map, head: numberOr(head, null), words: words !== "0", special: special !== "0" });
  state.otherHead = otherHead === "mean" ? null : numberOr(otherHead, state.head);
  Object.assign(state, { row: numberOr(row, 0), column: numberOr(column, 0), pinned: row !== undefined && column !== undefined });
  at("words").checked = state.words;
  at("special").checked = !state.special;
};
const start = async () => {
  readState(data.parameters);
  const complete = await sides.restore(data.parameters);
  document.body.dataset.ready = "1";
  if (complete) await submit(null, false);
};
const restore = async ({ state: saved }) => {
  const parameters = Object.fromEntries(new URLSearchParams(location.search));
  const before = state.words === (parameters.words !== "0") && state.special === (parameters.special !== "0");
  readState(parameters);
  if (shown && before && saved?.ids?.join() === [shown.first.id, shown.second.id].join()) return render();
  if (await sides.restore(parameters)) return submit(null, false);
  shown = null;
  at("results").hidden = true;
  at("empty").hidden = false;
  return undefined;
};
addEventListener("popstate", restore);
start();
