// A form of options: a field for each, by its kind; only what was changed is said.
import { make } from "./common.js";

export const forms = (options) => options.map((one) => {
  const field = one.type === "bool"
    ? make("select", { name: one.name }, new Option("no", "false"), new Option("yes", "true"))
    : make("input", { type: /int|float/.test(one.type) ? "number" : "text", name: one.name, placeholder: String(one.default ?? "") });
  if (field.type === "number") field.step = "any";
  if (one.type === "bool") field.value = String(one.default);
  field.dataset.usual = String(one.default);
  field.title = one.help ?? "";
  return make("label", { title: one.help ?? "" }, `${one.name} `, field);
});

export const values = (place) => Object.fromEntries([...place.querySelectorAll("[name]")]
  .filter((field) => field.value !== "" && field.value !== field.dataset.usual)
  .map((field) => [field.name, field.value]));
