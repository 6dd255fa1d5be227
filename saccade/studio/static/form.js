// Forms of a model: a control for each input by its kind, and for each option by its type.
import { isSmall } from "./heat.js";
import { make, request } from "./studio.js";

const FILE_BYTES = 8 << 20; // of an uploaded file
const FILES = { image: "image/*", audio: "audio/*" };
const UPLOAD = "upload:"; // begins the name of a file that the studio keeps in memory

const control = (field) => {
  if (field.kind in FILES) return make("input", { type: "file", accept: FILES[field.kind] });
  if (field.kind === "vector") return make("input", { type: "text", placeholder: "[0.1, -2, 3]" });
  const area = make("textarea", { rows: 2, dir: "auto", spellcheck: false });
  if (field.kind === "world") area.placeholder = field.help;
  if (field.kind === "graph") area.placeholder = '{"nodes": [...], "edges": [...]}';
  return area;
};

const picture = (properties) => {
  const image = make("img", properties);
  image.onload = () => image.classList.toggle("coarse", isSmall([image.naturalWidth, image.naturalHeight]));
  return image;
};
// A file is kept as a data URL, which its field reads like any other form of the input.
const setFile = (input, url, error = "") => {
  input.url = url;
  showFileError(input, error);
  const preview = input.parentElement.querySelector(".preview");
  preview.hidden = !url;
  if (url) preview.src = url;
};
const showFileError = (input, error) => {
  const message = input.parentElement.querySelector(".error");
  message.textContent = error;
  message.hidden = !error;
};
// Files are read in the background: of several for one control the last counts, whichever is read first.
const beginFile = (input) => {
  const reading = (input.reading = Symbol(input.name));
  return (url, error) => input.reading === reading && setFile(input, url, error);
};
const takeFile = (input, file) => {
  const set = beginFile(input);
  const refuse = (rule) => {
    input.value = "";
    set("", `${file.name || "The file"} must be ${rule}`);
  };
  const { kind } = input.dataset;
  if (file.type && !file.type.startsWith(`${kind}/`)) return refuse(`${kind === "image" ? "an image" : "audio"}, but is ${file.type}`);
  if (file.size > FILE_BYTES) return refuse(`at most ${FILE_BYTES >> 20} MB, but has ${(file.size / (1 << 20)).toFixed(1)} MB; choose a smaller one`);
  const reader = new FileReader();
  reader.onload = () => set(reader.result);
  reader.onerror = () => refuse("readable, but is not; choose another one");
  return reader.readAsDataURL(file);
};
const fileOf = (transfer, kind) => [...(transfer?.files ?? [])].find((file) => file.type.startsWith(`${kind}/`)) ?? transfer?.files[0];
// The area around a file control: files are chosen, dropped or, for images, pasted.
const dropArea = (field, input) => {
  const hint = make("span", { className: "soft" }, field.kind === "image" ? "or drop or paste an image here" : "or drop a file here");
  const player = () => make("audio", { className: "preview", controls: true, hidden: true });
  const preview = [field.kind === "image" ? picture({ className: "preview", alt: "chosen image", hidden: true }) : player()];
  const area = make("div", { className: "drop" }, input, hint, ...preview, make("p", { className: "error", role: "alert", hidden: true }));
  preview.forEach((image) => {
    image.onerror = () => {
      showFileError(input, `This ${field.kind === "image" ? "image cannot be shown" : "sound cannot be played"} by the browser; the model may still read it.`);
      image.hidden = true;
    };
  });
  const over = (on) => (event) => {
    event.preventDefault();
    area.classList.toggle("over", on);
  };
  Object.assign(area, { ondragover: over(true), ondragenter: over(true), ondragleave: over(false) });
  area.ondrop = (event) => {
    over(false)(event);
    const file = fileOf(event.dataTransfer, field.kind);
    if (file) takeFile(input, file);
  };
  input.onchange = () => input.files[0] && takeFile(input, input.files[0]);
  return area;
};
const pasteInto = (container) => (event) => {
  const input = container.querySelector("[data-kind=image]");
  const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
  if (!input || !file) return;
  event.preventDefault();
  takeFile(input, file);
};

// Examples of the validation data that have an image: a click fills the form.
const samples = (container, examples) => {
  const buttons = examples.map((values) => {
    const src = Object.values(values).find(isPicture);
    const text = exampleName(Object.fromEntries(Object.entries(values).filter(([, value]) => value !== src)));
    const button = make("button", { type: "button", className: "sample", title: text }, picture({ src, alt: text || "example image" }), ...(text ? [make("small", {}, text)] : []));
    button.onclick = () => writeInputs(container, values);
    return button;
  });
  return make("div", { className: "field samples" }, make("span", { className: "soft" }, "From the validation data"), make("div", { className: "row" }, ...buttons));
};
const isPicture = (value) => typeof value === "string" && value.startsWith("data:image/");
export const havePictures = (examples) => examples.length > 0 && examples.every((values) => Object.values(values).some(isPicture));

// Build the controls of some fields in `container`; submit() is called by Ctrl+Enter.
export const buildInputs = (container, fields, submit, examples = []) => {
  container.fields = fields;
  const parts = fields.map((field) => {
    const input = Object.assign(control(field), { id: `${container.dataset.prefix ?? "input-"}${field.name}`, name: field.name, title: field.help });
    input.dataset.kind = field.kind;
    input.onkeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    };
    const label = make("label", { className: "soft", htmlFor: input.id }, field.name + (field.optional ? " (optional)" : ""));
    return make("div", { className: field.optional ? "field optional" : "field" }, label, field.kind in FILES ? dropArea(field, input) : input);
  });
  const pictures = havePictures(examples) ? [samples(container, examples)] : [];
  container.replaceChildren(...parts, ...pictures);
  document.onpaste = pasteInto(container);
};
const inputsOf = (container) => [...container.querySelectorAll("[data-kind]")];
export const readInputs = (container) => Object.fromEntries(inputsOf(container)
  .map((input) => [input.name, input.dataset.kind in FILES ? input.url ?? "" : input.value])
  .filter(([name, value]) => value !== "" || !container.fields.find((field) => field.name === name).optional));
// Returns whether all values could be written: the studio forgets files after a while.
export const writeInputs = async (container, values) => {
  let complete = true;
  for (const input of inputsOf(container)) {
    const value = values[input.name];
    if (value === undefined || value === null) continue;
    if (!(input.dataset.kind in FILES)) input.value = typeof value === "string" ? value : JSON.stringify(value);
    else {
      const set = beginFile(input);
      try {
        set(value.startsWith(UPLOAD) ? (await request(`/api/uploads/${encodeURIComponent(value)}`)).url : value);
      } catch (error) {
        complete = false;
        set("", error.message);
      }
    }
  }
  return complete;
};
export const isEmpty = (container) => Object.values(readInputs(container)).every((value) => value === "");
// What an address can hold of the inputs: files by the name that the studio gave them, not by their content.
export const textInputs = (values) => Object.fromEntries(Object.entries(values)
  .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])
  .filter(([, value]) => !value.startsWith("data:")));
const valueName = (value) => {
  if (typeof value === "string") return value.startsWith("data:") ? value.match(/^data:(\w*)/)[1] || "file" : value;
  return value.nodes && value.edges ? `graph of ${value.nodes.length} nodes and ${value.edges.length} edges` : JSON.stringify(value);
};
export const exampleName = (values) => Object.values(values).map(valueName).join(" | ").slice(0, 80);
// The inputs of one model for another: by name, else by position where the kinds are the same.
export const convertInputs = (values, from, to) => Object.fromEntries(to.map((field, i) => [field.name, values[field.name] ?? (from[i]?.kind === field.kind ? values[from[i].name] : undefined)])
  .filter(([, value]) => value !== undefined));

export const optionControls = (options) => options.map((option) => {
  const input = option.type === "bool"
    ? make("select", { name: option.name }, new Option("no", "false"), new Option("yes", "true"))
    : make("input", { type: /int|float/.test(option.type) ? "number" : "text", name: option.name, placeholder: String(option.default ?? "") });
  if (input.type === "number") input.step = "any";
  if (option.type === "bool") input.value = String(option.default);
  input.dataset.default = String(option.default);
  input.title = option.help ?? "";
  return make("label", { title: option.help ?? "" }, `${option.name} `, input);
});
// Only options that differ from their default.
export const readOptions = (container) => Object.fromEntries([...container.querySelectorAll("[name]")]
  .filter((input) => input.value !== "" && input.value !== input.dataset.default)
  .map((input) => [input.name, input.value]));
export const optionText = (container) => Object.entries(readOptions(container)).map(([name, value]) => `${name}=${value}`).join("\n");
export const parseOptionText = (text) => Object.fromEntries((text ?? "").split("\n").filter(Boolean).map((line) => [line.split("=")[0], line.split("=").slice(1).join("=")]));
export const writeOptions = (container, values) => {
  for (const [name, value] of Object.entries(values)) {
    const input = container.querySelector(`[name="${CSS.escape(name)}"]`);
    if (input) input.value = value;
  }
};
