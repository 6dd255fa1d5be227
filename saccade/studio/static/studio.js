// Shared by every page: its initial data, requests, elements, colours, light and dark.
import "./scrolling.js";

export const at = (id) => document.getElementById(id);
export const data = JSON.parse(at("data").textContent);

// Strings always become text nodes: nothing from a model, a file or a run is ever parsed as markup.
export const make = (name, properties = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};
export const shape = (name, attributes = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

export const request = async (path, body) => {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The studio does not respond. Is `saccade studio` still running?");
  }
  if (!response.ok) throw await failure(response);
  return isJson(response) ? response.json() : response.arrayBuffer();
};
const isJson = (response) => (response.headers.get("content-type") ?? "").includes("json");
export const failure = async (response) => new Error(isJson(response) ? (await response.json()).error : await response.text());

// Weights are unsigned 16-bit integers, little-endian: 65535 is 1.
export const decodeWeights = (buffer) => {
  const weights = new Float32Array(new Uint16Array(buffer));
  for (let i = 0; i < weights.length; i++) weights[i] /= 65535;
  return weights;
};
export const decodeBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
export const query = (values) => new URLSearchParams(values).toString();

// Show an error below the form, or in the part of the page that could not be shown; or clear it.
export const showError = (error, place = "message") => {
  at(place).replaceChildren(...(error ? [make("p", { className: "error", role: "alert" }, error.message ?? error)] : []));
};
export const stateOf = (run) => (run.running ? "training" : run.finished ? "finished" : "stopped");
// A number that is not finite is null in JSON.
export const digits = (value, count = 2) => (Number.isFinite(value) ? value.toFixed(count) : value === null ? "\u2013" : String(value));
// A number on its own: significant digits, without zeros at its end.
export const number = (value, count = 3) => {
  if (!Number.isFinite(value)) return digits(value);
  const whole = Math.trunc(Math.abs(value));
  return String(Number(value.toPrecision(Math.max(count, whole ? String(whole).length : 0))));
};
// An output as text; of a prompt that was only read nothing. A vector is drawn (vector.js).
export const outputText = ({ text }, generated = true) => text || (generated ? "(no answer)" : "(the prompt alone: probabilities of the next token)");
export const thousands = (value) => Math.round(value).toLocaleString("en");

// The address names what is on screen, so that a link restores the same view. push: the view is another one, and Back
// returns to the one before; else only something in it has changed. saved: what the page keeps with the view.
export const updateAddress = (values, { push = false, saved = null } = {}) => {
  const tour = new URLSearchParams(location.search).get("tour");
  const kept = Object.fromEntries([...Object.entries(values), ["tour", tour]].filter(([, value]) => value !== "" && value !== null));
  const address = `${location.pathname}?${query(kept)}`;
  if (push && address !== location.pathname + location.search) history.pushState(saved, "", address);
  else history.replaceState(saved, "", address);
};
// Fill a list of models. A name in the address that is not among them is told, and no other model is opened instead.
export const listModels = (select, names, asked, others = []) => {
  const unknown = Boolean(asked) && !names.includes(asked);
  select.replaceChildren(...others, ...names.map((name) => new Option(name)));
  if (unknown) {
    select.prepend(new Option("choose a model", ""));
    showError(`There is no model '${asked}' here: choose one of the list, or start the studio with it.`);
  }
  if (asked || unknown) select.value = unknown ? "" : asked;
  return !unknown;
};

export const dark = () => document.documentElement.classList.contains("dark");
const applyTheme = (name) => {
  document.documentElement.classList.toggle("dark", name === "dark");
  dispatchEvent(new Event("theme"));
};
const preferredTheme = () => localStorage.getItem("theme")
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
applyTheme(preferredTheme());
at("theme").onclick = () => {
  localStorage.setItem("theme", dark() ? "light" : "dark");
  applyTheme(preferredTheme());
};
matchMedia("(prefers-color-scheme: dark)").onchange = () => applyTheme(preferredTheme());

// One hue from light to dark: readable with any colour blindness.
const RAMPS = {
  light: [[255, 255, 255], [190, 212, 245], [98, 146, 222], [26, 86, 196], [10, 32, 92]],
  dark: [[20, 23, 27], [30, 58, 104], [46, 104, 178], [109, 177, 255], [224, 240, 255]],
};
export const ramp = () => {
  const stops = RAMPS[dark() ? "dark" : "light"];
  const table = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) {
    const position = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    for (let c = 0; c < 3; c++) table[4 * i + c] = stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (position - low);
    table[4 * i + 3] = 255;
  }
  return table;
};
// A value from 0 to 1 as a colour of CSS.
export const shade = (value) => `rgb(${ramp().slice(4 * Math.round(255 * value), 4 * Math.round(255 * value) + 3).join(" ")})`;
// The same with black or white, whichever can be read on it.
export const shadeText = (value) => {
  const [red, green, blue] = ramp().slice(4 * Math.round(255 * value), 4 * Math.round(255 * value) + 3);
  const linear = (part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  return [`rgb(${red} ${green} ${blue})`, light > 0.179 ? "#000" : "#fff"];
};
// Draw values from 0 to 1 (or bytes, with scale 1) on a canvas, one pixel per cell.
export const drawPixels = (canvas, values, width, scale = 255) => {
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, values.length / width);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const [colours, cells] = [ramp(), image.data].map((bytes) => new Uint32Array(bytes.buffer)); // RGBA as one number
  for (let i = 0; i < values.length; i++) cells[i] = colours[Math.min(255, Math.max(0, Math.round(values[i] * scale)))];
  pen.putImageData(image, 0, 0);
};
// A table whose first column is text and whose other columns are numbers.
export const table = (head, rows) => {
  const cell = (name) => (value, i) => {
    const header = name === "th" && value !== ""; // a header has a text
    return make(header ? "th" : "td", { ...(header ? { scope: "col" } : {}), className: i ? "number" : "" }, value);
  };
  return make("div", { className: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map(cell("th")))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell("td")))))));
};

export const COLOURS = ["a", "b", "c", "d", "e", "f"].map((name) => `var(--${name})`);

if (new URLSearchParams(location.search).has("tour")) import("./tour.js").then(({ startTour }) => startTour());
