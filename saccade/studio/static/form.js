// Forms of a model: a control for each input by its kind, and for each option by its type.
import { make } from "./studio.js";

const FILE_BYTES = 8 << 20; // of an uploaded file
const FILES = { image: "image/*", audio: "audio/*" };

const control = (field) => {
  if (field.kind in FILES) return fileControl(field);
  if (field.kind === "vector") return make("input", { type: "text", placeholder: "[0.1, -2, 3]" });
  const area = make("textarea", { rows: 2, dir: "auto", spellcheck: false });
  if (field.kind === "graph") area.placeholder = '{"nodes": [...], "edges": [...]}';
  return area;
};
// A file is kept as a data URL, which its field reads like any other form of the input.
const fileControl = (field) => {
  const input = make("input", { type: "file", accept: FILES[field.kind] });
  input.onchange = () => {
    const [file] = input.files;
    if (!file) return;
    input.setCustomValidity(file.size > FILE_BYTES ? `a file of at most ${FILE_BYTES >> 20} MB` : "");
    if (!input.reportValidity()) return;
    const reader = new FileReader();
    reader.onload = () => setFile(input, reader.result);
    reader.readAsDataURL(file);
  };
  return input;
};
const setFile = (input, url) => {
  input.url = url;
  input.dispatchEvent(new Event("loaded"));
};

// Build the controls of some fields in `container`; submit() is called by Ctrl+Enter.
export const buildInputs = (container, fields, submit) => {
  container.fields = fields;
  container.replaceChildren(...fields.map((field) => {
    const input = Object.assign(control(field), { id: `input-${field.name}`, name: field.name, title: field.help });
    input.dataset.kind = field.kind;
    input.onkeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    };
    const label = make("label", { className: "soft", htmlFor: input.id }, field.name + (field.optional ? " (optional)" : ""));
    const preview = make("img", { className: "preview", alt: "", hidden: true });
    input.addEventListener("loaded", () => {
      preview.hidden = field.kind !== "image";
      if (!preview.hidden) preview.src = input.url;
    });
    return make("div", { className: "field" }, label, input, ...(field.kind === "image" ? [preview] : []));
  }));
};
const inputsOf = (container) => [...container.querySelectorAll("[data-kind]")];
export const readInputs = (container) => Object.fromEntries(inputsOf(container)
  .map((input) => [input.name, input.dataset.kind in FILES ? input.url ?? "" : input.value])
  .filter(([name, value]) => value !== "" || !container.fields.find((field) => field.name === name).optional));
export const writeInputs = (container, values) => inputsOf(container).forEach((input) => {
  const value = values[input.name];
  if (value === undefined || value === null) return;
  if (input.dataset.kind in FILES) setFile(input, value);
  else input.value = typeof value === "string" ? value : JSON.stringify(value);
});
export const isEmpty = (container) => Object.values(readInputs(container)).every((value) => value === "");
// What an address can hold of the inputs: no files.
export const textInputs = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => !value.startsWith("data:")));
export const exampleName = (values) => Object.values(values).map((value) => (typeof value !== "string" ? JSON.stringify(value) : value.startsWith("data:") ? value.match(/^data:(\w*)/)[1] || "file" : value)).join(" | ").slice(0, 80);
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
