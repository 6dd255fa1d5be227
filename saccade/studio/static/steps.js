// Step by step: from the vector of a token to what a head says, with the model's own numbers.
import { ask, at, data, digits, make, query, remember, say, table } from "./common.js";
import { dot, mix, softmax, times } from "./math.js";

let look = null;
let found = null;

const field = (value, act, name) => {
  const input = make("input", { type: "number", step: "any", value: Number(value.toPrecision(6)) });
  input.setAttribute("aria-label", name);
  input.onchange = () => act(Number(input.value));
  return input;
};
const vector = (values, act, name, most = 64) => make("div", { className: "vector" },
  ...values.slice(0, most).map((value, i) => (act ? field(value, (now) => act(i, now), `${name} ${i}`) : make("span", {}, digits(value, 3)))),
  values.length > most ? make("small", {}, `\u2026 ${values.length} in all`) : "");
const step = (title, text, ...parts) => make("li", {}, make("h2", {}, title), make("p", { className: "soft" }, text), ...parts);

const plainly = () => found.plain.every((value, i) => Math.abs(value - found.q[i]) < 1e-5 * (1 + Math.abs(value)));
const onward = ({ fromX = false, fromScores = false } = {}) => {
  if (fromX) {
    found.plain = times(found.matrix, found.x).map((value, i) => value + (found.bias ? found.bias[i] : 0));
    found.q = [...found.plain];
  }
  if (!fromScores && found.fits) {
    found.fits = found.k.map((key) => dot(found.q, key));
    found.scores = found.fits.map((fit) => fit * found.scale);
  }
  const rest = found.rest ? [found.rest] : []; // keys that are not shown count as one
  const weights = softmax([...found.scores, ...rest.map((one) => one.score)], [...found.allowed, ...rest.map(() => true)]);
  found.weights = weights.slice(0, found.scores.length);
  found.mixed = mix(weights, [...found.v, ...rest.map((one) => one.value)]);
  found.changed = true;
  draw();
};

const draw = () => {
  const direct = plainly();
  const size = found.q.length;
  const rows = found.labels.map((label, i) => [
    make("bdi", {}, label), found.fits ? digits(found.fits[i], 3) : "", field(found.scores[i], (now) => { found.scores[i] = now; onward({ fromScores: true }); }, `score of ${label}`),
    found.allowed[i] ? "" : "hidden", make("b", {}, digits(found.weights[i], 4))]);
  at("steps").replaceChildren(
    step("x: the token as it comes in", `${found.x.length} numbers.${direct ? "" : " This model turns q and k by their places, or brings them to one length, so change q below instead."}`,
      vector(found.x, direct ? (i, now) => { found.x[i] = now; onward({ fromX: true }); } : null, "x", 32)),
    step("W_Q x: what it asks for", `The head's part of W_Q has ${size} rows of ${found.x.length} numbers; each row times x gives one number${found.bias ? ", plus a bias" : ""}. The first row begins ${found.matrix[0].slice(0, 4).map((value) => digits(value, 3)).join(", ")}\u2026`,
      vector(found.plain)),
    step("q: the query", direct ? "The same: this model does nothing more to it." : "The same after its place was turned in, and its length brought to one where the model does that.",
      vector(found.q, (i, now) => { found.q[i] = now; onward(); }, "q")),
    step("Scores, mask and softmax", found.fits
      ? `q.k for every key, times ${digits(found.scale, 4)}${Math.abs(found.scale - size ** -0.5) < 1e-6 ? ` = 1 / \u221a${size}` : ""}; keys that may not be seen are hidden; softmax makes weights of the rest, which sum to 1.`
      : "This model scores the fit of q and k by a small network; softmax makes weights of the scores, which sum to 1.",
      table(["key", "q.k", "score", "mask", "weight"], rows),
      found.rest ? make("p", { className: "soft" }, `The ${found.labels.length} keys with the largest weights; the others together weigh ${digits(1 - found.weights.reduce((one, two) => one + two, 0), 4)}.`) : ""),
    step("The weighted mean of the values", "Each key's value vector times its weight, added up: what this head says.", vector(found.mixed)),
    step("All heads side by side, times W_O", found.changed ? "Numbers were changed above, so what follows from the other heads is no longer shown." : `${found.joined.length} numbers, and after W_O the ${found.output.length} that are added to the token.`,
      ...(found.changed ? [] : [vector(found.joined, null, "", 32), vector(found.output, null, "", 32)])),
  );
};

const compute = async () => {
  const [map, head, token] = ["map", "head", "token"].map((id) => at(id).value);
  remember({ model: at("model").value, text: at("text").value, map, head, query: token });
  try {
    found = await ask(`/api/look/${look.id}/steps?${query({ map, head, query: token })}`);
    say(at("said"));
    draw();
  } catch (error) {
    say(at("said"), error);
  }
};
const pick = (wanted = {}) => {
  const names = look.maps.filter((one) => one.name !== "alignment").map((one) => one.name);
  at("pick").hidden = !names.length;
  if (!names.length) return say(at("said"), "This model has no attention to look at.");
  at("map").replaceChildren(...names.map((name) => new Option(name)));
  if (names.includes(wanted.map)) at("map").value = wanted.map;
  inner(wanted);
  return undefined;
};
const inner = (wanted = {}) => {
  const map = look.maps.find((one) => one.name === at("map").value);
  at("head").replaceChildren(...Array.from({ length: map.heads }, (_, i) => new Option(i)));
  at("token").replaceChildren(...map.queries.labels.map((label, i) => new Option(`${i} ${label}`, i)));
  if (wanted.head < map.heads) at("head").value = wanted.head;
  at("token").value = wanted.query < map.queries.labels.length ? wanted.query : map.queries.labels.length - 1;
  compute();
};
const go = async (event) => {
  event?.preventDefault();
  const options = Object.fromEntries((data.asked.options ?? "").split("\n").filter(Boolean).map((line) => [line.split("=")[0], line.split("=").slice(1).join("=")]));
  try {
    look = await ask("/api/look", { model: at("model").value, text: at("text").value, options: event ? {} : options });
    say(at("said"));
    pick(event ? {} : data.asked);
  } catch (error) {
    say(at("said"), error);
  }
};
at("model").replaceChildren(...data.models.map((name) => new Option(name)));
if (data.models.includes(data.asked.model)) at("model").value = data.asked.model;
at("text").value = data.asked.text ?? "";
at("form").onsubmit = go;
at("map").onchange = () => inner();
at("head").onchange = at("token").onchange = compute;
if (data.asked.text !== undefined) go();
