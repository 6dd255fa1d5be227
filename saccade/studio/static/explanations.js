// Explanations of a prediction: head statistics, ablation, attribution, logit lens.
import { gallery, markHead } from "./gallery.js";
import { at, digits, make, number, query, request, table } from "./studio.js";
import { tabs } from "./tabs.js";
import { showAxis } from "./views.js";

const DELAY = 250; // milliseconds on one head before its statistics are fetched
const POSITIONS = 24; // of an answer in the table of the logit lens

const error = (problem) => make("p", { className: "error", role: "alert" }, problem.message);

// changed(): the heads that are removed are others.
export const explanations = ({ state, prediction, changed, choose }) => {
  let open = "heads";
  let importance = null;
  const statistics = new Map(); // of the heads of a map
  let timer = 0;
  const container = at("explanation");
  let latest = 0;
  // A response that arrives after another request is not shown.
  const begin = () => {
    const number = ++latest;
    return (...parts) => number === latest && container.replaceChildren(...parts);
  };
  const mapOf = (name) => prediction().maps.find((map) => map.name === name);
  const titleOf = (name) => mapOf(name)?.title ?? name;
  const wait = (put) => put(make("p", { className: "soft" }, "Computing\u2026"));
  const get = (part, parameters = {}) => request(`/api/look/${prediction().id}/${part}?${query(parameters)}`);

  // A button that ablates every head once, then shows again.
  const importanceButton = () => {
    const compute = make("button", { type: "button" }, "Compute head importance");
    const text = compute.textContent;
    compute.onclick = async () => {
      const { id } = prediction();
      compute.disabled = true;
      compute.textContent = "Ablating each head\u2026";
      compute.parentElement.querySelector(".error")?.remove();
      try {
        const values = await get("importance");
        if (id !== prediction().id) return;
        importance = values;
        await show();
      } catch (problem) {
        compute.after(error(problem));
      } finally {
        compute.disabled = false;
        compute.textContent = text;
      }
    };
    return compute;
  };
  const heads = async (put) => {
    const name = state.map;
    const key = `${prediction().id} ${name}`;
    if (!statistics.has(key)) statistics.set(key, await get("statistics", { map: name }));
    const decrease = importance?.[name];
    const selfAttention = mapOf(name).keys === null; // positions of two sequences cannot be compared
    const lost = (head) => (decrease ? digits(decrease[head], 3) : "");
    const overNodes = selfAttention && mapOf(name).queries.kind === "nodes"; // in no order
    const head = overNodes ? ["", "entropy", "same node", "importance"] : ["", "pattern", "entropy", "distance", "same token", "previous token", "first token", "importance"];
    const rows = statistics.get(key).map((row, i) => (overNodes
      ? [`head ${i}`, digits(row.entropy), digits(row.same), lost(i)]
      : [`head ${i}`, selfAttention ? row.pattern : "", digits(row.entropy), ...(selfAttention ? [digits(row.distance, 1), digits(row.same), digits(row.previous)] : ["", "", ""]), digits(row.first), lost(i)]));
    put(
      make("p", { className: "soft" }, `Means over the queries of ${titleOf(name)}. Entropy 0: one key, 1: uniform. Importance: decrease of the answer's log-probability without the head.`),
      table(head, rows), decrease ? "" : importanceButton());
  };

  const ablation = async (put, ablations = state.ablations) => {
    const buttons = make("div", { className: "row" });
    // Another list of removed heads counts when the model has accepted it.
    const remove = async (list, button) => {
      const numbered = begin();
      button.disabled = true;
      buttons.parentElement.querySelector(".error")?.remove();
      try {
        await ablation(numbered, list);
        state.ablations = list;
        changed();
      } catch (problem) {
        buttons.after(error(problem));
      } finally {
        button.disabled = false;
      }
    };
    const add = (entries, text) => {
      const button = make("button", { type: "button" }, text);
      button.onclick = () => remove([...ablations, ...entries], button);
      return button;
    };
    const single = !state.words && state.column >= 0;
    const clear = make("button", { type: "button", disabled: !ablations.length }, "Clear");
    clear.onclick = () => remove([], clear);
    buttons.append(
      ...state.heads.map((head) => add([{ map: state.map, head }], `${titleOf(state.map)} \u00b7 head ${head}`)),
      ...(single ? state.heads.map((head) => add([{ map: state.map, head, query: state.row, key: state.column }], `only query ${state.row}, key ${state.column} of head ${head}`)) : []),
      clear);
    const intro = make("p", { className: "soft" }, state.heads.length
      ? "Attention weights alone do not explain an answer. Remove a head and compare the probabilities:"
      : "Choose a head on the left first; over tokens instead of words a single query and key can be masked too.");
    const parts = [intro, buttons];
    if (ablations.length) {
      const effect = await request(`/api/look/${prediction().id}/effect`, { ablations });
      const value = (scores) => digits(scores.top.length ? Math.exp(scores.log_prob) : scores.log_prob, 3); // or the number itself
      const top = (scores) => scores.top.slice(0, 3).map(([name, probability]) => `${name} ${digits(probability)}`).join(", ");
      const removed = ablations.map((entry) => `${titleOf(entry.map)} \u00b7 head ${entry.head}${entry.query === undefined ? "" : ` (query ${entry.query}, key ${entry.key})`}`);
      parts.push(make("p", {}, `Removed: ${removed.join("; ")}. `, make("b", {}, `The answer loses ${number(effect.lost)} of ${effect.quantity} per position.`)));
      parts.push(table(["answer", "before", "after", "most likely after"], effect.before.map((scores, i) => [
        make("bdi", {}, scores.answer), value(scores), value(effect.after[i]), top(effect.after[i])])));
    }
    put(...parts);
  };

  const attribution = async (put, method = "gradient", position = "") => {
    const methods = make("select", {}, new Option("gradient x input", "gradient"), new Option("integrated gradients", "integrated"));
    methods.value = method;
    const positions = make("input", { type: "number", min: 0, value: position, placeholder: "all" });
    methods.onchange = positions.onchange = () => attribution(begin(), methods.value, positions.value);
    const controls = make("div", { className: "row" }, make("label", {}, "Method ", methods), make("label", {}, "Position of the answer ", positions));
    put(controls, make("p", { className: "soft" }, "Computing\u2026"));
    try {
      const scores = await get("attribution", { method, ...(position === "" ? {} : { position }) });
      const views = scores.map(({ axis, values }) =>
        showAxis({ axis, labels: axis.labels, values, largest: Math.max(...values.map(Math.abs), 1e-9), signed: true }));
      put(controls, make("p", { className: "soft" }, "Contribution of each part of the input to the answer; negative ones in the second colour."), ...views);
    } catch (problem) {
      put(controls, error(problem));
    }
  };

  const lens = async (put) => {
    wait(put);
    const layers = await get("logit-lens");
    const last = layers.at(-1).positions;
    const rows = layers.map((layer) => [layer.name, ...layer.positions.slice(0, POSITIONS).map((scores) => `${scores.top[0]?.[0] ?? scores.answer} ${digits(scores.top[0]?.[1] ?? scores.log_prob)}`)]);
    put(make("p", { className: "soft" }, "What the output layer predicts from the residual stream after each layer."),
      table(["", ...last.slice(0, POSITIONS).map((scores) => scores.answer)], rows),
      last.length > POSITIONS ? make("p", { className: "soft" }, `The first ${POSITIONS} of ${last.length} positions.`) : "");
  };

  const patterns = async (put) => {
    const key = `${prediction().id} gallery`;
    if (!statistics.has(key)) {
      wait(put);
      statistics.set(key, await get("gallery"));
    }
    put(...gallery({ heads: statistics.get(key), importance, state, choose }), importance ? "" : importanceButton());
    markHead(state);
  };

  const show = async () => {
    mark(document.querySelector(`[data-explanation=${open}]`));
    if (!prediction()?.maps.length) return;
    const put = begin();
    try {
      await ({ heads, gallery: patterns, ablation, attribution, lens })[open](put);
    } catch (problem) {
      put(error(problem));
    }
  };
  const mark = tabs(at("explanations"), (tab) => {
    open = tab.dataset.explanation;
    show();
  });
  return {
    reset: () => {
      importance = null;
      statistics.clear();
      show();
    },
    // Moving quickly from head to head does not wait for the statistics of each.
    changed: () => {
      clearTimeout(timer);
      if (open === "gallery") markHead(state);
      else if (["heads", "ablation"].includes(open)) timer = setTimeout(show, DELAY);
    },
  };
};
