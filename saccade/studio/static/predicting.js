// The form of the pages that read one prediction: choose a model, fill in its inputs, and let it read them.
import { at, data, listModels, request, showError } from "./studio.js";
import { buildInputs, isEmpty, parseOptionText, readInputs, writeInputs } from "./form.js";

// show(prediction, first): first: as the address asks for it. Returns what a link to this prediction holds.
export const predictingForm = (show) => {
  let options = parseOptionText(data.parameters.options);
  const label = at("submit").textContent;
  const submit = async (event) => {
    event?.preventDefault();
    if (!at("inputs").fields) return;
    at("submit").disabled = true;
    at("submit").textContent = "Reading\u2026";
    try {
      const prediction = await request("/api/look", { model: at("model").value, inputs: readInputs(at("inputs")), options });
      showError();
      show(prediction, !event);
    } catch (error) {
      showError(error);
    } finally {
      at("submit").disabled = false;
      at("submit").textContent = label;
    }
  };
  // Returns whether the inputs of the address could be written.
  const describeModel = async () => {
    const { value: name } = at("model");
    if (!name) return false;
    try {
      const form = await request(`/api/models/${encodeURIComponent(name)}/form`);
      if (name !== at("model").value) return false; // another one was chosen while this was loaded
      const before = at("inputs").fields ? readInputs(at("inputs")) : data.parameters;
      buildInputs(at("inputs"), form.inputs, submit, form.examples);
      const complete = await writeInputs(at("inputs"), before);
      if (isEmpty(at("inputs")) && form.examples.length) await writeInputs(at("inputs"), form.examples[0]);
      return complete;
    } catch (error) {
      showError(error);
      return false;
    }
  };
  const opened = listModels(at("model"), data.models, data.parameters.model);
  at("model").onchange = () => {
    options = {}; // they were those of another model
    describeModel();
  };
  at("form").onsubmit = submit;
  if (opened) describeModel().then((complete) => complete && at("inputs").fields.some((field) => data.parameters[field.name] !== undefined) && submit());
  return { model: () => at("model").value, options: () => Object.entries(options).map(([name, value]) => `${name}=${value}`).join("\n") };
};
