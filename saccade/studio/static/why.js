// Why: what heads do, what the answer loses without them, which inputs matter, what each layer would say.
import { ask, at, digits, make, query, table } from "./common.js";

const REST = 250; // milliseconds on one head

export const reasons = ({ state, look, changed, failed }) => {
  let open = "habits";
  let importance = null;
  const known = new Map(); // what the heads of a map do
  let resting = 0;
  const place = at("why");
  let turn = 0;
  // What comes late, when something else has been asked for since, is not shown.
  const begin = () => {
    const mine = ++turn;
    return (...parts) => mine === turn && place.replaceChildren(...parts);
  };
  const wait = (put) => put(make("p", { className: "soft" }, "Computing\u2026"));
  const get = (what, how = {}) => ask(`/api/look/${look().id}/${what}?${query(how)}`);

  const habits = async (put) => {
    const name = state.map;
    const key = `${look().id} ${name}`;
    if (!known.has(key)) known.set(key, await get("summary", { map: name }));
    const found = known.get(key);
    const lost = importance?.[name];
    const weigh = make("button", { type: "button" }, "What is each head worth?");
    weigh.onclick = async () => {
      weigh.disabled = true;
      weigh.textContent = "Switching off one head after the other\u2026";
      try {
        importance = await get("importance");
        await show();
      } catch (error) {
        failed(error);
      }
    };
    const own = look().maps.find((one) => one.name === name).keys === null; // places of two texts cannot be compared
    const rows = found.map((one, head) => [`head ${head}`, own ? one.kind : "", digits(one.entropy), ...(own ? [digits(one.distance, 1), digits(one.itself), digits(one.previous)] : ["", "", ""]), digits(one.first), lost ? digits(lost[head], 3) : ""]);
    put(
      make("p", { className: "soft" }, `What the heads of ${name} do, as means over the queries. Entropy 0 looks at one key, 1 at all alike. Worth: how much the log-probability of the answer falls without the head.`),
      table(["", "mostly", "entropy", "distance", "itself", "previous", "first", "worth"], rows), lost ? "" : weigh);
  };

  const off = async (put) => {
    const heads = state.heads.length ? state.heads : [];
    const add = (offs, text) => {
      const button = make("button", { type: "button" }, text);
      button.onclick = () => {
        state.offs = [...state.offs, ...offs];
        changed();
        show();
      };
      return button;
    };
    const buttons = [
      ...heads.map((head) => add([{ map: state.map, head }], `${state.map}, head ${head}`)),
      ...(state.words ? [] : heads.map((head) => add([{ map: state.map, head, query: state.row, key: state.column }], `only the look ${state.row} \u2192 ${state.column} of head ${head}`))),
    ];
    const clear = make("button", { type: "button", disabled: !state.offs.length }, "All on again");
    clear.onclick = () => {
      state.offs = [];
      changed();
      show();
    };
    const intro = make("p", { className: "soft" }, heads.length
      ? "Weights alone do not explain an answer. Switch something off and see what becomes of it:"
      : "Choose a head on the left first; without whole words a single look can be forbidden too.");
    const parts = [intro, make("div", { className: "row" }, ...buttons, clear)];
    if (state.offs.length) {
      const found = await ask(`/api/look/${look().id}/effect`, { offs: state.offs });
      const best = (one) => one.best.slice(0, 3).map(([name, chance]) => `${name} ${digits(chance)}`).join(", ");
      parts.push(make("p", {}, `Off: ${state.offs.map((one) => `${one.map} ${one.head}${one.query === undefined ? "" : ` (${one.query} \u2192 ${one.key})`}`).join("; ")}. `, make("b", {}, `The answer loses ${digits(found.lost, 3)} of log-probability a place.`)));
      parts.push(table(["answer", "before", "after", "most likely now"], found.before.map((one, i) => [
        make("bdi", {}, one.answer), digits(Math.exp(one.fit), 3), digits(Math.exp(found.after[i].fit), 3), best(found.after[i]) || digits(found.after[i].fit, 3)])));
    }
    put(...parts);
  };

  const gradient = async (put, by = "gradient", spot = "") => {
    wait(put);
    const found = await get("why", { by, ...(spot === "" ? {} : { place: spot }) });
    const kinds = make("select", {}, new Option("gradient x input", "gradient"), new Option("integrated gradients", "integrated"));
    kinds.value = by;
    const spots = make("input", { type: "number", min: 0, value: spot, placeholder: "all" });
    kinds.onchange = spots.onchange = () => gradient(begin(), kinds.value, spots.value).catch(failed);
    const strips = found.map((reading) => {
      const most = Math.max(...reading.values.map(Math.abs), 1e-9);
      return make("div", { className: "strip" }, ...reading.labels.map((label, i) => {
        const value = reading.values[i];
        const token = make("span", { className: "token" }, make("span", { dir: "auto" }, label), make("small", {}, digits(value)));
        token.style.setProperty("--share", (0.65 * Math.abs(value)) / most);
        token.style.setProperty("--tint", value < 0 ? "var(--b)" : "var(--a)");
        return token;
      }));
    });
    put(make("div", { className: "row" }, make("label", {}, "By ", kinds), make("label", {}, "Place of the answer ", spots)),
      make("p", { className: "soft" }, "How much each token speaks for the answer (blue) or against it (orange)."), ...strips);
  };

  const layers = async (put) => {
    wait(put);
    const found = await get("layers");
    const places = found.at(-1).said.length;
    const rows = found.map((layer) => [layer.name, ...layer.said.slice(0, 24).map((one) => `${one.best[0]?.[0] ?? one.answer} ${digits(one.best[0]?.[1] ?? one.fit)}`)]);
    put(make("p", { className: "soft" }, "What the output layer would say if the network ended after each layer."),
      table(["", ...found.at(-1).said.slice(0, 24).map((one) => one.answer)], rows),
      places > 24 ? make("p", { className: "soft" }, `The first 24 of ${places} places.`) : "");
  };

  const show = async () => {
    for (const tab of document.querySelectorAll("[data-why]")) tab.setAttribute("aria-selected", String(tab.dataset.why === open));
    if (!look()?.maps.length) return;
    const put = begin();
    try {
      await ({ habits, off, gradient, layers })[open](put);
    } catch (error) {
      put(make("p", { className: "error", role: "alert" }, error.message));
    }
  };
  for (const tab of document.querySelectorAll("[data-why]")) tab.onclick = () => {
    open = tab.dataset.why;
    show();
  };
  return {
    reset: () => {
      importance = null;
      known.clear();
      show();
    },
    // Whoever goes quickly from head to head need not wait for what each of them does.
    changed: () => {
      clearTimeout(resting);
      if (["habits", "off"].includes(open)) resting = setTimeout(show, REST);
    },
  };
};
