// A vector as a strip of bars, with its norm and a button that copies its numbers: never a wall of numbers.
import { dark, make, number, thousands } from "./studio.js";

const [WIDTH, HEIGHT] = [384, 34]; // pixels of the strip
const COPIED = 1500; // milliseconds

export const normOf = (values) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

// Bars up for positive and down for negative numbers; of more numbers than pixels a bar is the largest of its part.
const draw = (canvas, values) => {
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [WIDTH * ratio, HEIGHT * ratio];
  const style = getComputedStyle(document.documentElement);
  const colours = ["--ink", "--b", "--line"].map((name) => style.getPropertyValue(name).trim());
  const pen = canvas.getContext("2d");
  const largest = Math.max(...values.map(Math.abs), 1e-12);
  const [middle, bars] = [canvas.height / 2, Math.min(values.length, canvas.width)];
  const wide = canvas.width / bars;
  pen.fillStyle = colours[2];
  pen.fillRect(0, middle, canvas.width, 1);
  for (let i = 0; i < bars; i++) {
    const part = values.slice(Math.floor((i * values.length) / bars), Math.max(Math.floor((i * values.length) / bars) + 1, Math.floor(((i + 1) * values.length) / bars)));
    const value = part.reduce((most, next) => (Math.abs(next) > Math.abs(most) ? next : most), 0);
    pen.fillStyle = colours[value < 0 ? 1 : 0];
    pen.fillRect(i * wide, middle, Math.max(1, wide - (wide > 3 ? 1 : 0)), (-value / largest) * (middle - 1));
  }
  canvas.dataset.theme = dark() ? "dark" : "light";
};
addEventListener("theme", () => {
  for (const canvas of document.querySelectorAll(".vector-strip canvas")) draw(canvas, canvas.values);
});

const copyButton = (values) => {
  const button = make("button", { type: "button" }, "Copy");
  const tell = (text) => {
    button.textContent = text;
    setTimeout(() => { button.textContent = "Copy"; }, COPIED);
  };
  button.title = `Copy the ${thousands(values.length)} numbers as JSON`;
  button.onclick = () => navigator.clipboard.writeText(JSON.stringify([...values])).then(() => tell("Copied"), () => tell("The browser refused"));
  return button;
};

// name: what the vector is, such as "q". A missing number (null) counts as 0.
export const vectorStrip = (numbers, name = "Vector") => {
  const values = Array.from(numbers, (value) => (Number.isFinite(value) ? value : 0));
  const text = `${name} of ${thousands(values.length)} numbers, norm ${number(normOf(values), 4)}`;
  const canvas = make("canvas", {});
  canvas.values = values;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${text}, as bars`);
  canvas.onpointermove = ({ offsetX }) => {
    const i = Math.min(values.length - 1, Math.max(0, Math.floor((offsetX / canvas.clientWidth) * values.length)));
    canvas.title = `${i}: ${number(values[i], 4)}`;
  };
  draw(canvas, values);
  return make("div", { className: "vector-strip" }, make("span", {}, text), canvas, copyButton(numbers));
};
