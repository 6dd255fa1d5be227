// The numbers of one stage of the flow; unfolded, its vectors and the way to Step by step.
import { digits, make, number, table } from "./studio.js";
import { vectorBars } from "./numbers.js";

const facts = (...pairs) => make("dl", { className: "facts" }, ...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
const soft = (...parts) => make("p", { className: "soft" }, ...parts);

const attended = ({ attended: from, kind }) => {
  if (!from) return kind === "feed" ? [] : [soft("The keys of this attention are not single tokens, so what each token contributes is not known.")];
  const rows = from.sources.map(({ label, norm, weight, head }) => [make("bdi", {}, label), number(norm), digits(weight, 4), String(head)]);
  const largest = Math.max(...from.heads, 1e-12);
  const bars = from.heads.map((norm, i) => {
    const bar = make("i", {});
    bar.style.height = `${(100 * norm) / largest}%`;
    const column = make("span", { title: `head ${i}: norm ${number(norm)}` }, bar);
    return column;
  });
  return [make("h3", {}, "What each token contributes"), table(["token", "norm", "largest weight", "in head"], rows),
    soft(`All other tokens: ${number(from.others)}. Biases: ${number(from.constant)}. These vectors sum to what is added.`),
    make("h3", {}, `What each head contributes (largest: head ${from.head}, norm ${number(from.heads[from.head])})`), make("div", { className: "head-bars", role: "img", "aria-label": `Norms by head: ${from.heads.map((norm) => number(norm)).join(", ")}` }, ...bars)];
};
const about = (stage) => {
  const normalized = Math.abs(stage.output - stage.update) > 1e-4 * stage.output;
  return [facts(["Residual stream before", number(stage.x, 4)], ...(normalized ? [["Output, before its norm", number(stage.output, 4)]] : []), ["Added", number(stage.update, 4)],
    [stage.pre_norm ? "Residual stream after" : "Sum", number(stage.total, 4)], ...(stage.pre_norm ? [] : [["After the norm", number(stage.result, 4)]]), ["Cosine of stream and added", digits(stage.cosine, 3)]),
  soft(stage.pre_norm ? "Pre-norm: x + f(norm(x))." : "Post-norm: norm(x + f(x)).", " Numbers are norms of vectors.")];
};
const predictions = (entry) => (entry ? [make("h3", {}, "Most likely output here (logit lens)"), table(["output", "probability"], entry.top.map(([label, probability]) => [make("bdi", {}, label), digits(probability, 4)]))] : []);

const content = (flow, name) => {
  if (name === "embedding") {
    const { parts, embedding, added, x } = flow.embedding;
    return ["Embedding", [facts(...parts.map((part) => [part.name, number(part.norm, 4)]), [parts.length ? "Embedding: their sum, normalized" : "Embedding", number(embedding, 4)],
      ...added.map((part) => [`Added: ${part.name}`, number(part.norm, 4)]), ["Residual stream", number(x, 4)]), ...predictions(flow.lens?.[0])]];
  }
  if (name === "output") {
    return ["Output of the stack", [facts(["Residual stream", number(flow.output.x, 4)], ["After the final norm", number(flow.output.result, 4)]), ...predictions(flow.lens?.at(-1)),
      ...(flow.lens ? [] : [soft("No output layer reads single tokens of this stack, so there is no logit lens.")])]];
  }
  const stage = flow.stages.find((entry) => entry.name === name);
  const last = flow.stages.filter(({ layer }) => layer === stage.layer).at(-1) === stage;
  return [stage.title, [...about(stage), ...attended(stage), ...(last ? predictions(flow.lens?.find(({ layer }) => layer === stage.layer)) : [])]];
};
// open: whether the vectors are shown, which vectors() fetches; stepsLink(map, head): the address of Step by step.
export const showStage = (place, flow, name, { stepsLink, open, vectors }) => {
  const [title, parts] = content(flow, name);
  const stage = flow.stages.find((entry) => entry.name === name);
  const heading = make("h2", {}, title);
  const links = stage && stage.kind !== "feed" && stage.attended
    ? [make("p", {}, make("a", { className: "unfold", href: stepsLink(name, stage.attended.head) }, `Step by step: head ${stage.attended.head}`))] : [];
  const bars = make("div", {});
  place.replaceChildren(heading, ...links, ...parts, open ? bars : soft("Click or press Enter to see its vectors."));
  if (open) unfold(bars, vectors);
};
const unfold = async (place, vectors) => {
  place.replaceChildren(soft("Reading the vectors\u2026"));
  try {
    const answer = await vectors();
    if (!place.isConnected) return; // another stage was chosen meanwhile
    const figures = answer.vectors.map(({ name, values }) => vectorBars(name, () => values));
    place.replaceChildren(make("h3", {}, "Vectors"), ...figures);
    for (const figure of figures) figure.update();
  } catch (error) {
    place.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
  }
};
