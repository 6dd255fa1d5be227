// The output of a prediction in one line: a text, a picture or a vector, its scores, and what the model did not read.
import { at, make, number, outputText, thousands } from "./studio.js";
import { vectorStrip } from "./vector.js";

const SCORES = 12;
const NAMES = { log_probability: "log-probability" }; // of scores; others are labels
const CUT = /^cut to ([\d,]+) of ([\d,]+) tokens: (.*)$/s; // a note of the model
export const scoreName = (name) => NAMES[name] ?? name;
const count = (text) => thousands(Number(text.replaceAll(",", "")));

// Notes of a prediction; of a truncated text both numbers.
export const notices = (notes = []) => notes.map((note) => {
  const [, kept, total, what] = note.match(CUT) ?? [];
  const text = kept ? `Showing ${count(kept)} of ${count(total)} tokens: the model's limit (${what}).` : note;
  return make("p", { className: kept ? "notice" : "soft", dir: "auto" }, text);
});
// The output itself. whole: the prompt comes before the text that continues it.
export const outputNodes = ({ output, inputs, continues, generated }) => {
  if (output.vector) return [vectorStrip(output.vector)];
  if (output.png) return [make("img", { className: "preview coarse", alt: output.text, src: `data:image/png;base64,${output.png}` })];
  if (continues && generated) return [make("span", { className: "soft" }, Object.values(inputs)[0]), output.text];
  return [output.text || make("span", { className: "soft" }, outputText(output, generated))];
};
export const showResult = (prediction) => {
  at("output").replaceChildren(...outputNodes(prediction));
  at("scores").replaceChildren(...Object.entries(prediction.scores).slice(0, SCORES).map(([name, value]) =>
    make("div", {}, make("dt", {}, scoreName(name)), make("dd", {}, number(value, 4)))));
  at("notices").replaceChildren(...notices(prediction.notes));
};
