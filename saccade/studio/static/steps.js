// Step by step: from the vector of a token to the residual stream after attention, with the model's own numbers.
import { at, query, request, showError, updateAddress, data } from "./studio.js";
import { calculation } from "./calculation.js";
import { textInputs } from "./form.js";
import { predictingForm } from "./predicting.js";
import { showSteps } from "./stepviews.js";

let prediction = null;
let answer = null; // the numbers as the model computed them
let asked = 0;

const draw = () => {
  at("reset").disabled = true;
  showSteps(at("steps"), calculation(answer), () => { at("reset").disabled = false; });
};
at("reset").onclick = draw;

const compute = async () => {
  const [map, head, position] = ["map", "head", "query"].map((id) => at(id).value);
  const link = { model: prediction.model, ...textInputs(prediction.inputs), options: form.options() };
  updateAddress({ ...link, map, head, query: position });
  const stack = map.match(/(.+)\.\d+\.(?:self|cross)$/)?.[1];
  at("flow").hidden = !stack;
  at("flow").href = `/flow?${query({ ...link, stack: stack ?? "", position })}`;
  const call = ++asked;
  try {
    const numbers = await request(`/api/look/${prediction.id}/calculation?${query({ map, head, query: position })}`);
    if (call !== asked) return; // another one was asked for meanwhile
    answer = numbers;
    showError();
    draw();
  } catch (error) {
    at("steps").replaceChildren();
    showError(error);
  }
};
const showHeads = (selected = {}) => {
  const map = prediction.maps.find((entry) => entry.name === at("map").value);
  const { labels } = map.queries;
  const before = at("query").value;
  at("head").replaceChildren(...Array.from({ length: map.heads }, (_, i) => new Option(i)));
  at("query").replaceChildren(...labels.map((label, i) => new Option(`${i} ${label}`, i)));
  if (selected.head < map.heads) at("head").value = selected.head;
  const wanted = selected.query ?? before;
  at("query").value = wanted !== "" && wanted < labels.length ? wanted : labels.length - 1;
  compute();
};
const show = (answered, first) => {
  prediction = answered;
  const maps = prediction.maps.filter(({ name }) => !["alignment", "rollout"].includes(name));
  const names = maps.map((map) => map.name);
  at("selectors").hidden = !names.length;
  at("steps").replaceChildren();
  if (!names.length) return showError("This model has no attention to show.");
  const selected = first ? data.parameters : {};
  at("map").replaceChildren(...maps.map(({ name, title }) => new Option(title, name)));
  if (names.includes(selected.map)) at("map").value = selected.map;
  at("query").replaceChildren();
  return showHeads(selected);
};
const form = predictingForm(show);
at("map").onchange = () => showHeads({ head: at("head").value });
at("head").onchange = at("query").onchange = compute;
