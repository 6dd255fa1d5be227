// The Replay page: an episode of a policy in its environment, step by step.
import { at, data, digits, listModels, make, query, request, shape, showError, updateAddress } from "./studio.js";
import { chart, mark } from "./chart.js";
import { showAxis } from "./views.js";

const FRAME = 40; // milliseconds per step while playing
const TRACK = 2.4; // metres from the middle of CartPole's track to its ends
let episode = null;
let step = 0;
let timer = 0;

const number = (value) => digits(value, 3);
const actionText = (action) => (Array.isArray(action) ? action.map(number).join(", ") : action);
const returnSoFar = () => episode.steps.slice(0, step + 1).reduce((sum, { reward }) => sum + reward, 0);

// The scene: CartPole is drawn from its state, other environments have frames, not of each step of a long episode.
const cartpole = ([position, , angle]) => {
  const picture = shape("svg", { viewBox: "-2.6 -1.5 5.2 2", class: "cartpole", role: "img", "aria-label": `cart at ${number(position)}, pole at ${number(angle)} rad` });
  const cart = shape("g", { transform: `translate(${position} 0)` },
    shape("rect", { x: -0.25, y: -0.12, width: 0.5, height: 0.24, rx: 0.03 }),
    shape("line", { class: "pole", x1: 0, y1: 0, x2: Math.sin(angle), y2: -Math.cos(angle) }));
  picture.append(shape("line", { class: "track", x1: -TRACK, x2: TRACK, y1: 0.15, y2: 0.15 }), cart);
  return picture;
};
const scene = () => {
  if (episode.drawing === "cartpole") return cartpole(episode.steps[step].observation);
  if (episode.drawing === "frames") return make("img", { className: "preview", src: episode.frames[Math.floor(step / episode.every)], alt: `step ${step + 1}` });
  return make("p", { className: "soft" }, episode.note);
};

const decision = ({ action, probabilities, observation }) => {
  const rows = [["action", actionText(action)], ["return so far", digits(returnSoFar(), 1)], ...episode.observations.map((name, i) => [name, number(observation[i])])];
  const bars = probabilities.length
    ? [make("h3", {}, "Probability of each action"), showAxis({ axis: { kind: "tokens" }, labels: episode.labels, values: probabilities, selected: probabilities.indexOf(Math.max(...probabilities)) })]
    : [];
  return [make("dl", { className: "scores" }, ...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))), ...bars];
};
const attention = (maps) => Object.entries(maps).flatMap(([name, heads]) => heads.map((weights, head) => {
  const labels = weights.map((_, i) => (i + 1 < weights.length ? `t-${weights.length - 1 - i}` : "t"));
  return make("section", { className: "axis" }, make("h3", {}, `${name}, head ${head}`),
    showAxis({ axis: { kind: "tokens" }, labels, values: weights, largest: Math.max(...weights, 1e-6) }));
}));

const show = (to) => {
  step = Math.min(Math.max(to, 0), episode.steps.length - 1);
  const taken = episode.steps[step];
  at("step").value = step;
  at("number").textContent = `step ${step + 1} of ${episode.steps.length}`;
  at("scene").replaceChildren(scene());
  at("decision").replaceChildren(...decision(taken));
  at("maps").replaceChildren(...attention(taken.attention));
  for (const figure of at("charts").children) mark(figure, step / Math.max(1, episode.steps.length - 1));
  if (!timer) updateAddress({ model: episode.model, seed: episode.seed, step: step + 1 });
  document.body.dataset.step = String(step);
};
const curves = () => {
  const points = (values) => values.map((value, i) => [i + 1, value]);
  const actions = episode.steps.map(({ action }) => (Array.isArray(action) ? action : [episode.labels.indexOf(action)]));
  const series = [
    ...episode.observations.map((name, i) => [name, episode.steps.map(({ observation }) => observation[i])]),
    ...actions[0].map((_, i) => [actions[0].length > 1 ? `action ${i}` : "action", actions.map((action) => action[i])]),
    ...(episode.labels.length ? [["largest probability", episode.steps.map(({ probabilities }) => Math.max(...probabilities))]] : []),
    ["reward", episode.steps.map(({ reward }) => reward)],
  ];
  at("charts").replaceChildren(...series.map(([title, values]) => chart([{ name: title, points: points(values) }], { title })));
};

const stop = () => {
  clearInterval(timer);
  timer = 0;
  at("play").textContent = "Play";
  at("play").setAttribute("aria-pressed", "false");
};
const play = () => {
  if (timer) return stop();
  if (step + 1 >= episode.steps.length) show(0);
  timer = setInterval(() => (step + 1 < episode.steps.length ? show(step + 1) : stop()), FRAME);
  at("play").textContent = "Pause";
  at("play").setAttribute("aria-pressed", "true");
  return undefined;
};

const replay = async (first = 0) => {
  stop();
  at("submit").disabled = true;
  try {
    const [model, seed] = [at("model").value, Number(at("seed").value)];
    episode = { ...await request(`/api/replay?${query({ model, seed })}`), model };
    showError();
    at("results").hidden = false;
    at("summary").textContent = `${episode.environment}, seed ${episode.seed}: ${episode.steps.length} steps, return ${digits(episode.return, 1)}, ${episode.end}; the most probable action at each step`;
    at("step").max = episode.steps.length - 1;
    at("attention").hidden = !Object.keys(episode.steps[0].attention).length;
    curves();
    show(first);
    document.body.dataset.shown = String(Number(document.body.dataset.shown ?? 0) + 1);
  } catch (error) {
    showError(error);
  } finally {
    at("submit").disabled = false;
  }
};

const start = async () => {
  const { models, parameters } = data;
  at("empty").hidden = models.length > 0;
  at("form").hidden = !models.length;
  if (models.length) {
    const opened = listModels(at("model"), models, parameters.model);
    if (/^\d+$/.test(parameters.seed ?? "")) at("seed").value = parameters.seed;
    at("form").onsubmit = (event) => {
      event.preventDefault();
      return replay();
    };
    at("model").onchange = () => replay();
    at("play").onclick = play;
    at("previous").onclick = () => (stop(), show(step - 1));
    at("next").onclick = () => (stop(), show(step + 1));
    at("step").oninput = () => (stop(), show(Number(at("step").value)));
    if (opened) await replay((Number(parameters.step) || 1) - 1);
  }
  document.body.dataset.ready = "1";
};
start();
