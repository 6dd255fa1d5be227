// Explanations of a prediction: head statistics, ablation, attribution, logit lens.
import { at, digits, make, query, request, table } from "./studio.js";
import { showAxis } from "./views.js";

const DELAY = 250; // milliseconds on one head before its statistics are fetched
const POSITIONS = 24; // of an answer in the table of the logit lens

export const explanations = ({ state, prediction, changed, failed }) => {
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
  const wait = (put) => put(make("p", { className: "soft" }, "Computing\u2026"));
  const get = (part, parameters = {}) => request(`/api/look/${prediction().id}/${part}?${query(parameters)}`);

  const heads = async (put) => {
    const name = state.map;
    const key = `${prediction().id} ${name}`;
    if (!statistics.has(key)) statistics.set(key, await get("statistics", { map: name }));
    const decrease = importance?.[name];
    const compute = make("button", { type: "button" }, "Compute head importance");
    compute.onclick = async () => {
      compute.disabled = true;
      compute.textContent = "Ablating each head\u2026";
      try {
        importance = await get("importance");
        await show();
      } catch (error) {
        failed(error);
      }
    };
    const selfAttention = prediction().maps.find((map) => map.name === name).keys === null; // positions of two sequences cannot be compared
    const lost = (head) => (decrease ? digits(decrease[head], 3) : "");
    const overNodes = selfAttention && prediction().maps.find((map) => map.name === name).queries.kind === "nodes"; // in no order
    const head = overNodes ? ["", "entropy", "same node", "importance"] : ["", "pattern", "entropy", "distance", "same token", "previous token", "first token", "importance"];
    const rows = statistics.get(key).map((row, i) => (overNodes
      ? [`head ${i}`, digits(row.entropy), digits(row.same), lost(i)]
      : [`head ${i}`, selfAttention ? row.pattern : "", digits(row.entropy), ...(selfAttention ? [digits(row.distance, 1), digits(row.same), digits(row.previous)] : ["", "", ""]), digits(row.first), lost(i)]));
    put(
      make("p", { className: "soft" }, `Means over the queries of ${name}. Entropy 0: one key, 1: uniform. Importance: decrease of the answer's log-probability without the head.`),
      table(head, rows), decrease ? "" : compute);
  };

  const ablation = async (put) => {
    const add = (ablations, text) => {
      const button = make("button", { type: "button" }, text);
      button.onclick = () => {
        state.ablations = [...state.ablations, ...ablations];
        changed();
        show();
      };
      return button;
    };
    const buttons = [
      ...state.heads.map((head) => add([{ map: state.map, head }], `${state.map}, head ${head}`)),
      ...(state.words ? [] : state.heads.map((head) => add([{ map: state.map, head, query: state.row, key: state.column }], `only query ${state.row}, key ${state.column} of head ${head}`))),
    ];
    const clear = make("button", { type: "button", disabled: !state.ablations.length }, "Clear");
    clear.onclick = () => {
      state.ablations = [];
      changed();
      show();
    };
    const intro = make("p", { className: "soft" }, state.heads.length
      ? "Attention weights alone do not explain an answer. Remove a head and compare the probabilities:"
      : "Choose a head on the left first; over tokens instead of words a single query and key can be masked too.");
    const parts = [intro, make("div", { className: "row" }, ...buttons, clear)];
    if (state.ablations.length) {
      const effect = await request(`/api/look/${prediction().id}/effect`, { ablations: state.ablations });
      const value = (scores) => digits(scores.top.length ? Math.exp(scores.log_prob) : scores.log_prob, 3); // or the number itself
      const top = (scores) => scores.top.slice(0, 3).map(([name, probability]) => `${name} ${digits(probability)}`).join(", ");
      parts.push(make("p", {}, `Removed: ${state.ablations.map((entry) => `${entry.map} ${entry.head}${entry.query === undefined ? "" : ` (query ${entry.query}, key ${entry.key})`}`).join("; ")}. `, make("b", {}, `The answer loses ${digits(effect.lost, 3)} of ${effect.quantity} per position.`)));
      parts.push(table(["answer", "before", "after", "most likely after"], effect.before.map((scores, i) => [
        make("bdi", {}, scores.answer), value(scores), value(effect.after[i]), top(effect.after[i])])));
    }
    put(...parts);
  };

  const attribution = async (put, method = "gradient", position = "") => {
    wait(put);
    const scores = await get("attribution", { method, ...(position === "" ? {} : { position }) });
    const methods = make("select", {}, new Option("gradient x input", "gradient"), new Option("integrated gradients", "integrated"));
    methods.value = method;
    const positions = make("input", { type: "number", min: 0, value: position, placeholder: "all" });
    methods.onchange = positions.onchange = () => attribution(begin(), methods.value, positions.value).catch(failed);
    const views = scores.map(({ axis, values }) =>
      showAxis({ axis, labels: axis.labels, values, largest: Math.max(...values.map(Math.abs), 1e-9), signed: true }));
    put(make("div", { className: "row" }, make("label", {}, "Method ", methods), make("label", {}, "Position of the answer ", positions)),
      make("p", { className: "soft" }, "Contribution of each part of the input to the answer; negative ones in the second colour."), ...views);
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

  const show = async () => {
    for (const tab of document.querySelectorAll("[data-explanation]")) tab.setAttribute("aria-selected", String(tab.dataset.explanation === open));
    if (!prediction()?.maps.length) return;
    const put = begin();
    try {
      await ({ heads, ablation, attribution, lens })[open](put);
    } catch (error) {
      put(make("p", { className: "error", role: "alert" }, error.message));
    }
  };
  for (const tab of document.querySelectorAll("[data-explanation]")) tab.onclick = () => {
    open = tab.dataset.explanation;
    show();
  };
  return {
    reset: () => {
      importance = null;
      statistics.clear();
      show();
    },
    // Moving quickly from head to head does not wait for the statistics of each.
    changed: () => {
      clearTimeout(timer);
      if (["heads", "ablation"].includes(open)) timer = setTimeout(show, DELAY);
    },
  };
};
