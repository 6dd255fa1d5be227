// Temperature, top-k and top-p: they apply at once, also to what is being generated.
import { make } from "./studio.js";

const CONTROLS = {
  temperature: { label: "Temperature", range: [0, 2, 0.05], help: "<1 sharpens, >1 flattens, 0 is greedy" },
  top_k: { label: "Top-k", range: [0, 100, 1], help: "sample from the k most probable tokens; 0: all", off: 0 },
  top_p: { label: "Top-p", range: [0.05, 1, 0.01], help: "sample from the smallest set of tokens with at least this probability" },
};
export const SAMPLED = Object.keys(CONTROLS);

// options: of the model; changed(values) is called at every move of a slider.
export const samplingControls = (container, options, given, changed) => {
  const inputs = {};
  const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, Number(input.value)]));
  const fields = options.filter(({ name }) => name in CONTROLS).map((option) => {
    const { label, range: [min, max, step], help, off } = CONTROLS[option.name];
    const shown = make("output", { className: "number" });
    const input = make("input", { type: "range", name: option.name, min, max, step, title: help });
    input.value = String(given[option.name] ?? option.default);
    inputs[option.name] = input;
    const print = () => { shown.textContent = Number(input.value) === off ? "off" : String(Number(input.value)); };
    input.oninput = () => {
      print();
      changed(values());
    };
    print();
    return make("label", { className: "slider", title: help }, `${label} `, input, shown);
  });
  container.replaceChildren(...fields, make("div", { id: "sampling-message" }));
  container.hidden = !fields.length;
  return values;
};

// Send the newest values to each continuation, one request at a time.
export const steering = (send, failed) => {
  let [waiting, busy] = [null, false];
  return async (values) => {
    waiting = values;
    if (busy) return;
    busy = true;
    while (waiting) {
      const next = waiting;
      waiting = null;
      try {
        await send(next);
        failed();
      } catch (error) {
        failed(error);
      }
    }
    busy = false;
  };
};
