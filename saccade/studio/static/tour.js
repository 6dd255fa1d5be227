// A guided tour over the pages: it spotlights a part of the interface on a real model and says what is there.
// The address names the tour and its step, so that each step has a link: ?tour=heads.3&model=minilm
import { make, request } from "./studio.js";
import { tours } from "./tours.js";

const PATIENCE = 180_000; // milliseconds for a model to answer
const MOMENT = 3_000; // for a page to draw what it has
const PRETRAINED = ["minilm", "smollm2"]; // read the text of the tour; a run of one's own reads an example of its data
const PADDING = 8; // pixels around what is in the light

const parameters = () => new URLSearchParams(location.search);
const isVisible = (node) => node && node.getClientRects().length > 0 && node.getBoundingClientRect().height > 0;
const visible = (selector, text) => [...document.querySelectorAll(selector)].find((node) => isVisible(node) && (text === undefined || node.textContent.trim() === text));
const until = async (find, patience = PATIENCE) => {
  const end = performance.now() + patience;
  for (;;) {
    const node = find();
    if (node || performance.now() > end) return node;
    await new Promise((done) => setTimeout(done, 100));
  }
};

// The address of a step: its page, with the text of the tour in the first input of the model.
const addressOf = async (tour, number, model) => {
  const { on, with: values = {} } = tour.steps[number - 1];
  const entries = { tour: `${tour.id}.${number}` };
  if (model) entries.model = model;
  if (on === "lessons") return `/lessons?${new URLSearchParams(entries)}`;
  const form = await request(`/api/models/${encodeURIComponent(model)}/form`);
  const example = tour.text && (PRETRAINED.includes(model) || !form.examples.length) ? { [form.inputs[0].name]: tour.text } : form.examples[0] ?? {};
  return `/${on}?${new URLSearchParams({ ...entries, ...example, ...values })}`;
};

// What a step asks for is clicked once, in the order of the tour; a model whose text lacks a word goes without.
const perform = async ({ at, do: actions = [] }, done) => {
  for (const [selector, text] of actions) {
    const name = `${selector} ${text}`;
    if (done.has(name)) continue;
    done.add(name);
    await until(() => visible(selector) || visible(at));
    (await until(() => visible(selector, text), MOMENT))?.click();
  }
};

const show = (tour, start, model) => {
  const light = make("div", { className: "tour-light" });
  light.setAttribute("aria-hidden", "true");
  const title = make("h2", {});
  const content = make("p", {});
  const count = make("small", {});
  const back = make("button", { type: "button" }, "Back");
  const next = make("button", { type: "button", className: "main" }, "Next");
  const link = make("a", { className: "tour-link" }, "Link to this step");
  const close = make("button", { type: "button", className: "quiet" }, "\u00d7");
  close.setAttribute("aria-label", "End the tour");
  const words = make("div", { className: "tour-text" }, title, content);
  words.setAttribute("aria-live", "polite");
  const card = make("section", { className: "tour" }, make("div", { className: "row" }, count, link, close), words, make("div", { className: "row" }, back, next));
  card.setAttribute("aria-label", `Tour: ${tour.title}`);
  document.body.append(light, card);

  let [number, target] = [start, null];
  const done = new Set();
  const place = () => {
    if (!isVisible(target)) return light.classList.add("off");
    const box = target.getBoundingClientRect();
    light.classList.remove("off");
    Object.assign(light.style, { left: `${box.left - PADDING}px`, top: `${box.top - PADDING}px`, width: `${box.width + 2 * PADDING}px`, height: `${box.height + 2 * PADDING}px` });
    // The card is where it does not cover the light: below, else above, else in the corner.
    const room = card.getBoundingClientRect();
    const below = box.bottom + 3 * PADDING;
    const above = box.top - 3 * PADDING - room.height;
    const top = below + room.height <= innerHeight ? below : above >= 0 ? above : innerHeight - room.height - PADDING;
    const left = Math.max(PADDING, Math.min(box.left, innerWidth - room.width - PADDING));
    return Object.assign(card.style, { left: `${left}px`, top: `${Math.max(PADDING, top)}px` });
  };
  const end = () => {
    clearInterval(timer);
    removeEventListener("keydown", onKey, true);
    for (const node of [light, card]) node.remove();
    const rest = parameters();
    rest.delete("tour");
    history.replaceState(history.state, "", `${location.pathname}?${rest}`);
  };
  const go = async (to) => {
    if (to > tour.steps.length) return end();
    if (to < 1) return undefined;
    const step = tour.steps[to - 1];
    if (`/${step.on}` !== location.pathname) {
      location.href = await addressOf(tour, to, model);
      return undefined;
    }
    number = to;
    const rest = parameters();
    rest.set("tour", `${tour.id}.${to}`);
    history.replaceState(history.state, "", `${location.pathname}?${rest}`);
    count.textContent = `${tour.title}: ${to} of ${tour.steps.length}`;
    title.textContent = step.title;
    content.textContent = step.text;
    back.disabled = to === 1;
    next.textContent = to === tour.steps.length ? "End" : "Next";
    link.href = await addressOf(tour, to, model);
    target = null;
    card.dataset.step = "";
    light.classList.add("off");
    // A link may open any step: what the steps before it on this page did is done first.
    for (const before of tour.steps.slice(0, to).filter(({ on }) => on === step.on)) await perform(before, done);
    const node = await until(() => (number === to ? visible(step.at) : document.body));
    if (number !== to) return undefined;
    target = node;
    target?.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    place();
    card.dataset.step = to;
    return undefined;
  };
  const fail = (error) => { content.textContent = error.message; };
  const move = (by) => go(number + by).catch(fail);
  const isField = (node) => node?.matches?.("input, textarea, select");
  // PageDown and PageUp are the keys of a presenter; arrows too, while the card has the focus.
  const onKey = (event) => {
    const inCard = card.contains(document.activeElement);
    const by = { PageDown: 1, PageUp: -1, ...(inCard ? { ArrowRight: 1, ArrowLeft: -1 } : {}) }[event.key];
    if (by && !isField(document.activeElement)) {
      event.preventDefault();
      event.stopPropagation();
      move(by);
    } else if (event.key === "Escape" && inCard) end();
  };
  back.onclick = () => move(-1);
  next.onclick = () => move(1);
  close.onclick = end;
  addEventListener("keydown", onKey, true);
  const timer = setInterval(place, 200); // what is in the light moves while models answer
  next.focus({ preventScroll: true });
  go(start).catch(fail);
};

// Start the tour that the address names, where there is one.
export const startTour = () => {
  const values = parameters();
  const [name, number] = values.get("tour").split(".");
  const tour = tours.find(({ id }) => id === name);
  if (!tour) return;
  document.head.append(make("link", { rel: "stylesheet", href: "/static/tour.css" }));
  const step = Math.min(Math.max(1, Number(number) || 1), tour.steps.length);
  show(tour, step, values.get("model"));
};

// The tours of the Lessons page: what each is about, and the model that it runs on.
export const tourCards = (models) => tours.map((tour) => {
  const model = tour.needs ? models[tour.needs] : null;
  const about = tour.steps.length === 1 ? "1 step" : `${tour.steps.length} steps`;
  if (tour.needs && !model) {
    return make("li", { className: "tour-card" }, make("h3", {}, tour.title), make("p", { className: "soft" }, `${about}, on ${MISSING[tour.needs]}.`));
  }
  const start = make("button", { type: "button" }, "Start");
  start.setAttribute("aria-label", `Start the tour: ${tour.title}`);
  start.onclick = async () => { location.href = await addressOf(tour, 1, model); };
  return make("li", { className: "tour-card" }, make("h3", {}, tour.title), make("p", { className: "soft" }, `${about}${model ? `, on ${model}` : ""}`), start);
});
const MISSING = {
  encoder: "an encoder: open the studio with `saccade studio minilm`",
  decoder: "a language model: open the studio with `saccade studio smollm2`, or train one on a text",
  translation: "a translator: `saccade demo dates` trains one in a minute",
};
