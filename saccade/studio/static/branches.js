// Continuations side by side: their tokens, seeds, settings and probabilities.
import { digits, make, query } from "./studio.js";
import { probability } from "./bars.js";
import { rove } from "./roving.js";

const REASONS = {
  stop: "the model ended the text", length: "as many tokens as asked for", stopped: "stopped", context: "the context of the model is full", error: "failed",
};
const NAMES = { temperature: "temperature", top_k: "top-k", top_p: "top-p" };
const SPACE = "\u2423";
const TINT = 0.5; // of the least probable token

export const settingsText = (settings) => Object.entries(NAMES).filter(([name]) => settings?.[name] !== undefined)
  .map(([name, label]) => `${label} ${name === "top_k" && !settings[name] ? "off" : settings[name]}`).join(" \u00b7 ");
const same = (one, other) => Object.keys(NAMES).every((name) => one?.[name] === other?.[name]);
const candidateOf = (step) => step.candidates.find(([id]) => id === step.id);
// The settings of each stretch of tokens that were chosen with the same ones.
export const stretches = (steps) => {
  const result = [];
  steps.forEach((step, i) => {
    if (!step.given && (!result.length || !same(result.at(-1).settings, step.settings))) result.push({ from: i, settings: step.settings });
  });
  return result;
};
// The logarithm of the probability that the model gives all tokens together; null where it is not known.
export const logProbability = (steps) => steps.reduce((sum, step) => {
  const candidate = candidateOf(step);
  return sum === null || !candidate ? null : sum + Math.log(candidate[3]);
}, 0);

const tokenButton = (step, i, pick) => {
  const candidate = candidateOf(step);
  const [label, ahead] = step.token.startsWith(SPACE) && step.token !== SPACE ? [step.token.slice(1), " "] : [step.token, ""];
  const button = make("button", { type: "button", className: "flow-token", dir: "auto", tabIndex: -1 }, label);
  button.style.setProperty("--rare", candidate ? TINT * (1 - candidate[3]) : 0);
  button.classList.toggle("given", Boolean(step.given));
  button.classList.toggle("end", Boolean(step.end));
  button.title = candidate ? `token ${i + 1}: model ${probability(candidate[3])}, sampled from ${probability(candidate[2])}${step.given ? "; chosen by you" : ""}` : `token ${i + 1}`;
  button.onclick = () => pick(i);
  return [button, [ahead, button, ...(label.includes("\u21b5") ? [make("br")] : [])]];
};

// actions: pick(entry, step), proceed(entry), remove(entry).
export const card = (entry, actions) => {
  const flow = make("div", { className: "flow", dir: "auto" });
  const prompt = make("span", { className: "soft prompt" });
  flow.append(prompt);
  flow.setAttribute("role", "group");
  flow.setAttribute("aria-label", `Tokens of continuation ${entry.key}`);
  const state = make("span", { className: "soft state" });
  const settings = make("p", { className: "soft settings" });
  const proceed = make("button", { type: "button", className: "proceed" }, "Continue");
  const look = make("a", { className: "look" }, "Look inside");
  const remove = make("button", { type: "button", className: "quiet remove", title: `Remove continuation ${entry.key}` }, "\u00d7");
  remove.setAttribute("aria-label", remove.title);
  const title = make("h2", {}, entry.key, make("small", {}, entry.from ? `  from ${entry.from}` : ""));
  const node = make("section", { className: "card continuation", tabIndex: -1 },
    make("div", { className: "head" }, title, state, remove), flow, settings, make("div", { className: "row" }, proceed, look));
  node.setAttribute("aria-label", `Continuation ${entry.key}`);
  node.onclick = (event) => event.target.closest("button, a") || actions.pick(entry, -1);
  proceed.onclick = () => actions.proceed(entry);
  remove.onclick = () => actions.remove(entry);
  const buttons = [];
  let marked;

  const update = (selected, step) => {
    if (!prompt.textContent && entry.text !== undefined) prompt.textContent = entry.text;
    while (buttons.length < entry.steps.length) {
      const i = buttons.length;
      const [button, nodes] = tokenButton(entry.steps[i], i, (chosen) => actions.pick(entry, chosen));
      buttons.push(button);
      flow.append(...nodes);
    }
    node.classList.toggle("selected", selected);
    const current = selected ? buttons[step] : undefined;
    if (current !== marked) {
      marked?.classList.remove("on");
      current?.classList.add("on");
      marked = current;
    }
    if (!entry.running || buttons.length < 3) rove(flow, ".flow-token"); // in between new tokens are no tab stops
    if (entry.running && selected) flow.scrollTop = flow.scrollHeight;
    const count = `${entry.steps.length} ${entry.steps.length === 1 ? "token" : "tokens"}`;
    state.textContent = entry.running ? `generating, ${count}` : `${count}: ${entry.error ?? REASONS[entry.end] ?? "ended"}`;
    state.classList.toggle("live", entry.running);
    const total = logProbability(entry.steps);
    const changes = stretches(entry.steps).map(({ from, settings: values }, i) => (i ? `from token ${from + 1}: ${settingsText(values)}` : settingsText(values))).filter(Boolean);
    settings.textContent = [
      entry.seed === undefined ? "" : `seed ${entry.seed}`, ...changes, entry.givenCount ? `${entry.givenCount} tokens taken over` : "",
      total === null || !entry.steps.length ? "" : `log-probability ${digits(total, 2)}, ${probability(Math.exp(total / entry.steps.length))} per token`,
    ].filter(Boolean).join(" \u00b7 ");
    proceed.disabled = entry.running || entry.end === "context" || entry.steps.at(-1)?.end || !entry.id || !entry.canProceed;
    const link = entry.running ? null : entry.look();
    look.hidden = !link;
    if (link) look.href = `/look?${query(link)}`;
  };
  return { node, update };
};
