// The flow of one token through a stack of layers, and the numbers of the stage that is pointed at.
import { at, data, make, number, query, request, showError, updateAddress } from "./studio.js";
import { drawFlow, isUneven } from "./flowpicture.js";
import { textInputs } from "./form.js";
import { predictingForm } from "./predicting.js";
import { rove } from "./roving.js";
import { showStage } from "./stage.js";

const MOST = 512; // tokens of the strip; of a longer text the list is used

let prediction = null;
let flow = null;
let asked = 0;
let chosen = data.parameters.sqrt ? data.parameters.sqrt === "1" : null; // whether widths are square roots; null: where norms are uneven

const link = () => ({ model: prediction.model, ...textInputs(prediction.inputs), options: form.options() });
const stepsLink = (map, head) => `/steps?${query({ ...link(), map, head, query: flow.position })}`;
const fetchFlow = (values) => request(`/api/look/${prediction.id}/flow?${query(values)}`);

const showTokens = () => {
  const stack = flow.stacks.find(({ name }) => name === flow.stack);
  at("stack").replaceChildren(...flow.stacks.map(({ name, title }) => new Option(title, name)));
  at("stack").value = flow.stack;
  at("stack-label").hidden = flow.stacks.length < 2;
  at("position").replaceChildren(...stack.tokens.map((token, i) => new Option(`${i} ${token}`, i)));
  at("position").value = flow.position;
  const buttons = stack.tokens.length > MOST ? [] : stack.tokens.map((token, i) => {
    const button = make("button", { type: "button", className: i === flow.position ? "token on" : "token" }, make("bdi", {}, token));
    button.setAttribute("aria-pressed", String(i === flow.position));
    button.onclick = () => load({ map: flow.stack, position: i });
    return button;
  });
  const focused = at("tokens").contains(document.activeElement);
  at("tokens").replaceChildren(...buttons);
  rove(at("tokens"), ".token");
  if (focused) buttons[flow.position]?.focus();
};
const draw = (stage = "") => {
  showTokens();
  at("checked").textContent = `${flow.width} numbers wide. Checked: the parts sum to the residual stream${flow.error > 0 ? ` within ${number(100 * flow.error, 2)}% of its norm` : " exactly"}.`;
  const select = (name, pinned) => {
    showStage(at("stage"), flow, name, {
      stepsLink, open: pinned, vectors: () => fetchFlow({ map: flow.stack, position: flow.position, stage: name }),
    });
    if (pinned) remember(name);
    else if (stageShown()) remember();
  };
  at("flow").hidden = false;
  at("empty").hidden = true;
  const sqrt = at("sqrt").checked = chosen ?? isUneven(flow);
  drawFlow(at("picture"), flow, { select, selected: stage, sqrt });
  select(stage || flow.stages[0].name, Boolean(stage));
  document.body.dataset.drawn = String(performance.now());
};
const remember = (stage = "") => updateAddress({ ...link(), stack: flow.stack, position: flow.position, stage, sqrt: chosen === null ? "" : Number(chosen) });
const load = async (values, stage = "") => {
  const call = ++asked;
  try {
    const answer = await fetchFlow(values);
    if (call !== asked) return; // another token was chosen meanwhile
    flow = answer;
    const known = ["embedding", "output", ...flow.stages.map(({ name }) => name)].includes(stage) ? stage : "";
    remember(known);
    showError();
    draw(known);
  } catch (error) {
    at("flow").hidden = true;
    showError(error);
  }
};
const show = (answered, first) => {
  prediction = answered;
  const { stack, position, stage } = first ? data.parameters : {};
  load({ ...(stack ? { map: stack } : {}), ...(position ? { position } : {}) }, stage ?? "");
};
const form = predictingForm(show);
at("stack").onchange = () => load({ map: at("stack").value });
at("position").onchange = () => load({ map: flow.stack, position: at("position").value });
const stageShown = () => new URLSearchParams(location.search).get("stage") ?? "";
at("sqrt").onchange = () => {
  chosen = at("sqrt").checked;
  remember(stageShown());
  draw(stageShown());
};
let waiting = 0;
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // the height alone, as on a telephone that is scrolled
  width = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => flow && !at("flow").hidden && draw(stageShown()));
});
