// The next-token probabilities of one step as bars; a click continues with the token.
import { digits, make } from "./studio.js";
import { rove } from "./roving.js";

// A probability as people read it: 0.42, 0.003, 4e-5.
export const probability = (value) => (value >= 0.01 || value === 0 ? digits(value, 3) : value >= 0.0005 ? digits(value, 4) : value.toExponential(0));

const fill = (name, fraction) => {
  const bar = make("i", { className: name });
  bar.style.width = `${(100 * fraction).toFixed(2)}%`;
  return bar;
};
// candidates: [id, label, probability, probability of the model]; chosen: the id of the token that was taken.
export const bars = (candidates, chosen, given, take) => {
  const largest = Math.max(1e-9, ...candidates.map(([, , shaped, model]) => Math.max(shaped, model)));
  const nodes = candidates.map(([id, label, shaped, model]) => {
    const taken = id === chosen;
    const tag = taken ? (given ? "chosen by you" : "sampled") : "";
    const button = make("button", { type: "button", className: "bar-row" },
      make("span", { className: "bar-label", dir: "auto" }, label),
      make("span", { className: "bar-track" }, fill("of-model", model / largest), fill("shaped", shaped / largest)),
      make("span", { className: "bar-number" }, shaped === 0 ? "cut off" : probability(shaped)),
      make("span", { className: "bar-tag" }, tag));
    button.setAttribute("aria-label", `${label}: ${shaped === 0 ? "cut off" : probability(shaped)}, model ${probability(model)}${tag ? `, ${tag}` : "; continue with it"}`);
    button.title = taken ? `probability of the model ${probability(model)}` : `continue with this token; probability of the model ${probability(model)}`;
    if (taken) button.setAttribute("aria-current", "true");
    button.dataset.id = String(id);
    button.classList.toggle("cut", shaped === 0);
    button.onclick = () => taken || take(id, label);
    return button;
  });
  const list = make("div", { className: "bars" }, ...nodes);
  rove(list, ".bar-row");
  return list;
};
