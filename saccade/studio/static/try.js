// Try: the task's own form, and one model or two on the same input.
import { ask, at, data, digits, make, query, remember, say, wordsOf } from "./common.js";
import { forms, values } from "./options.js";

const describe = async () => {
  if (!at("model").value) return;
  try {
    const found = await ask(`/api/models/${encodeURIComponent(at("model").value)}/options`);
    at("summary").textContent = found.summary;
    at("options").replaceChildren(...forms(found.options.filter((one) => one.name !== "maps")));
    if (!at("text").value && found.examples.length) at("text").value = found.examples[0];
    say(at("said"));
  } catch (error) {
    say(at("said"), error);
  }
};

const bar = (name, value) => {
  const shade = make("span", { className: "token" }, make("span", {}, name), make("small", {}, digits(value, 4)));
  if (value >= 0 && value <= 1) shade.style.setProperty("--share", 0.65 * value);
  return shade;
};
const card = (found, milliseconds) => {
  const text = found.continues ? [make("span", { className: "soft" }, found.input), found.output] : [found.output || "(no answer)"];
  const aligned = found.maps.find((one) => one.name === "alignment");
  const parts = [
    make("h2", {}, found.model),
    make("p", { className: "answer", dir: "auto" }, ...text),
    make("div", { className: "strip" }, ...Object.entries(found.scores).slice(0, 20).map(([name, value]) => bar(name, value))),
    ...found.others.map((one) => make("p", { dir: "auto" }, make("small", {}, `${digits(Object.values(one.scores).at(-1), 3)}  `), one.output)),
  ];
  if (aligned && found.alignment) parts.push(alignment(aligned, found.alignment));
  const where = { model: found.model, text: at("text").value, options: Object.entries(values(at("options"))).map(([name, value]) => `${name}=${value}`).join("\n") };
  parts.push(make("p", { className: "row" }, make("small", {}, `${Math.round(milliseconds)} ms`), make("a", { href: `/look?${query(where)}` }, "Look inside")));
  return make("section", { className: "card" }, ...parts);
};
// Source words over target words, joined where one comes from the other.
const alignment = (map, pairs) => {
  const [targets, sources] = [wordsOf(map.queries), wordsOf(map.keys ?? map.queries)];
  const chips = (labels) => labels.map((label, i) => {
    const chip = make("button", { type: "button", className: "token" }, make("span", { dir: "auto" }, label), make("small", {}));
    chip.dataset.i = i;
    return chip;
  });
  const [above, below] = [chips(sources), chips(targets)];
  const light = (nodes, chosen) => nodes.forEach((node, i) => node.style.setProperty("--share", chosen.has(i) ? 0.5 : 0));
  below.forEach((node, i) => {
    node.onpointerenter = node.onfocus = () => {
      light(below, new Set([i]));
      light(above, new Set(pairs.filter(([, target]) => target === i).map(([source]) => source)));
    };
  });
  above.forEach((node, i) => {
    node.onpointerenter = node.onfocus = () => {
      light(above, new Set([i]));
      light(below, new Set(pairs.filter(([source]) => source === i).map(([, target]) => target)));
    };
  });
  return make("div", {}, make("h3", {}, "Which word comes from which"), make("div", { className: "strip" }, ...above), make("div", { className: "strip" }, ...below));
};

const go = async (event) => {
  event?.preventDefault();
  const names = [at("model").value, at("other").value].filter(Boolean);
  remember({ model: names[0], other: names[1] ?? "", text: at("text").value });
  at("go").disabled = true;
  try {
    const cards = [];
    for (const model of names) {
      const began = performance.now();
      cards.push(card(await ask("/api/look", { model, text: at("text").value, options: values(at("options")) }), performance.now() - began));
    }
    at("answers").replaceChildren(...cards);
    say(at("said"));
  } catch (error) {
    say(at("said"), error);
  } finally {
    at("go").disabled = false;
  }
};

at("model").replaceChildren(...data.models.map((name) => new Option(name)));
at("other").replaceChildren(new Option("nothing", ""), ...data.models.map((name) => new Option(name)));
for (const [id, name] of [["model", data.asked.model], ["other", data.asked.other]]) {
  if (data.models.includes(name)) at(id).value = name;
}
at("text").value = data.asked.text ?? "";
at("model").onchange = describe;
at("form").onsubmit = go;
at("text").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(event);
};
if (!data.models.length) {
  at("form").hidden = true;
  at("answers").replaceChildren(make("div", { className: "empty" }, make("h2", {}, "Nothing to try yet"), make("p", {}, "Train a model, or fetch one:"), make("pre", {}, "saccade models get minilm")));
}
describe().then(() => data.asked.text !== undefined && go());
