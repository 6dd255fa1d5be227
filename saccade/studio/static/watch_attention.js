// The attention of fixed examples during training: one head or all, at a step, played through all steps.
import { at, decodeBytes, decodeWeights, drawPixels, make, number, query, request, showError, thousands } from "./studio.js";
import { exampleName } from "./form.js";
import { drawHeatScale, heatControls, withImages } from "./heat.js";
import { labelledMatrix } from "./labelled_matrix.js";
import { showAxis } from "./views.js";

const FRAME = 500; // milliseconds of a step while it plays

export const watchAttention = (name) => {
  const cache = new Map(); // promises of snapshots, by step
  let steps = [];
  let newest = true; // the slider stays at the newest step until it is moved
  let patch = -1; // cell of the image whose attention is shown
  let timer = 0;
  let selected = null; // { head, cell }: whose weight is read, at every step

  const snapshot = (step) => {
    if (!cache.has(step)) {
      const kept = request(`/api/runs/${name}/attention/${step}`).then((answer) => {
        for (const { maps, images } of answer.examples) withImages(maps, images);
        return answer;
      });
      kept.catch(() => cache.delete(step));
      cache.set(step, kept);
    }
    return cache.get(step);
  };
  const offer = (select, entries, fallback) => {
    const same = select.options.length === entries.length && entries.every(([text], i) => select.options[i].text === text);
    if (same) return;
    const before = select.value;
    select.replaceChildren(...entries.map(([text, value]) => new Option(text, value)));
    select.value = entries.some(([, value]) => String(value) === before) ? before : fallback;
  };

  const show = async () => {
    at("snapshots").hidden = !steps.length;
    if (!steps.length) return;
    at("steps").max = steps.length - 1;
    if (newest) at("steps").value = steps.length - 1;
    const step = steps[Number(at("steps").value)];
    at("step").textContent = thousands(step);
    at("steps").setAttribute("aria-valuetext", `step ${step}`);
    try {
      const { examples } = await snapshot(step);
      if (step !== steps[Number(at("steps").value)]) return; // another step was chosen meanwhile
      offer(at("example"), examples.map((_, i) => [String(i + 1), i]), "0");
      const example = examples[Number(at("example").value)] ?? examples[0];
      offer(at("layer"), example.maps.map((map, i) => [map.title, i]), String(example.maps.length - 1));
      const map = example.maps[Number(at("layer").value)] ?? example.maps[0];
      offer(at("head"), [["all", "all"], ...Array.from({ length: map.heads }, (_, head) => [`head ${head}`, head])], "all");
      at("text").textContent = exampleName(example.inputs) + (example.output ? ` \u2192 ${example.output}` : "");
      showMap(map);
      link(map);
    } catch (error) {
      pause();
      showError(error);
    }
  };
  const link = (map) => {
    const head = at("head").value === "all" ? "mean" : at("head").value;
    const which = head === "mean" ? "the mean of all heads" : `head ${head}`;
    const shown = query({ example: at("example").value, map: map.name, head, sqrt: at("scale").value === "sqrt" ? 1 : 0 });
    at("gif").href = `/api/runs/${name}/attention.gif?${shown}`;
    at("gif").title = at("gif").ariaLabel = `Save ${which} at all steps as a GIF`;
    at("gif").textContent = head === "mean" ? "GIF of the mean" : `GIF of head ${head}`;
  };
  const showMap = (map) => {
    const [bytes, overImage] = [decodeBytes(map.weights), map.keys.kind === "grid"];
    const all = map.encoding === "uint16" ? decodeWeights(bytes.buffer) : Float32Array.from(bytes, (byte) => byte / 255);
    const size = map.queries.labels.length * map.keys.labels.length;
    const largest = all.reduce((most, weight) => Math.max(most, weight), 0);
    at("queries").hidden = at("heat").hidden = !overImage;
    at("colours").hidden = overImage;
    if (overImage) queries(map.queries);
    const chosen = at("head").value;
    const heads = chosen === "all" ? Array.from({ length: map.heads }, (_, head) => head) : [Number(chosen)];
    const focused = [...at("heads").children].findIndex((figure) => figure.contains(document.activeElement));
    at("heads").replaceChildren(...heads.map((head) => {
      const weights = all.subarray(head * size, (head + 1) * size);
      const title = map.heads > 1 ? `${map.title} \u00b7 head ${head}` : map.title;
      const picture = overImage ? heatMap(map, weights) : matrix({ map, weights, largest, head, title, count: heads.length });
      return make("figure", {}, picture, make("figcaption", { className: "soft" }, title));
    }));
    at("heads").children[focused]?.querySelector("[tabindex]")?.focus();
    legend(overImage, largest);
    at("reading").hidden = overImage;
    if (!heads.includes(selected?.head)) at("reading").textContent = "Point at a cell, or move with the arrow keys, to read its weight.";
  };
  const colourOf = (largest) => {
    const scale = at("scale").value;
    if (scale === "sqrt") return Math.sqrt;
    return scale === "largest" ? (weight) => weight / (largest || 1) : (weight) => weight;
  };
  const matrix = ({ map, weights, largest, head, title, count }) => labelledMatrix({
    queries: map.queries.labels, keys: map.keys.labels, weights, colour: colourOf(largest), count, name: title,
    selected: selected?.head === head ? selected.cell : null,
    read: (text, row, column) => {
      selected = { head, cell: [row, column] };
      at("reading").textContent = `step ${at("step").textContent}: ${text}`;
    },
  });
  // The colour scale with its numbers; over an image each picture has colours up to its own largest weight.
  const legend = (overImage, largest) => {
    const bar = make("canvas", {});
    if (overImage) {
      drawHeatScale(bar);
      at("legend").replaceChildren("0", bar, "the largest weight of each picture");
      return;
    }
    const top = at("scale").value === "largest" ? largest : 1;
    const colour = colourOf(largest);
    drawPixels(bar, Float32Array.from({ length: 64 }, (_, i) => colour((i / 63) * top)), 64);
    const note = at("scale").value === "largest" ? "the largest weight of this layer at this step" : `the same at all steps; the largest here is ${number(largest, 2)}`;
    at("legend").replaceChildren("0", bar, number(top, 2), make("span", { className: "soft" }, note));
  };
  // Over an image one query is shown, or the mean of all: a word, a position before the grid, or a patch that was clicked.
  const queries = ({ kind, labels, extra }) => {
    const single = labels.map((label, i) => [label, i]).slice(0, kind === "grid" ? extra.length : labels.length);
    const clicked = kind === "grid" && labels[patch] ? [[`patch ${labels[patch]}`, patch]] : [];
    const entries = [["mean of all", "mean"], ...single, ...clicked];
    const before = clicked.length ? String(patch) : at("query").value;
    at("query").replaceChildren(...entries.map(([label, value]) => new Option(label, value)));
    at("query").value = entries.some(([, value]) => String(value) === before) ? before : kind === "grid" && extra.length ? "0" : "mean";
  };
  const heatMap = (map, weights) => {
    const [axis, chosen] = [map.keys, at("query").value];
    const rows = chosen === "mean" ? Array.from({ length: map.queries.labels.length }, (_, i) => i) : [Number(chosen)];
    const values = axis.labels.map((_, i) => rows.reduce((sum, row) => sum + weights[row * axis.labels.length + i], 0) / rows.length);
    const cells = values.slice(axis.extra.length);
    const select = (i) => {
      patch = i;
      show();
    };
    const patches = map.queries.kind === "grid" ? { select, selected: chosen === "mean" ? -1 : Number(chosen) } : {};
    return showAxis({ axis, labels: axis.labels, values, largest: Math.max(...cells, 1e-6), side: 14, ...patches });
  };

  const pause = () => {
    clearTimeout(timer);
    timer = 0;
    at("play").textContent = "Play";
    at("play").setAttribute("aria-pressed", "false");
  };
  const advance = async () => {
    const next = Number(at("steps").value) + 1;
    if (next >= steps.length) return pause();
    newest = false;
    at("steps").value = next;
    await show();
    newest = next === steps.length - 1;
    if (timer) timer = setTimeout(advance, FRAME);
    return undefined;
  };
  at("play").onclick = async () => {
    if (timer) return pause();
    at("play").textContent = "Pause";
    at("play").setAttribute("aria-pressed", "true");
    timer = setTimeout(advance, FRAME);
    if (Number(at("steps").value) === steps.length - 1) { // from the beginning
      newest = false;
      at("steps").value = 0;
      await show();
    }
    return undefined;
  };
  at("steps").oninput = () => {
    pause();
    newest = Number(at("steps").value) === steps.length - 1;
    show();
  };
  at("example").onchange = at("layer").onchange = at("head").onchange = at("scale").onchange = show;
  at("query").onchange = () => {
    patch = -1;
    show();
  };
  at("heat").append(...heatControls());
  addEventListener("theme", show);
  return (snapshots) => {
    if (steps.length && snapshots.join() === steps.join()) return undefined; // what is read off stays
    steps = snapshots;
    return show();
  };
};
