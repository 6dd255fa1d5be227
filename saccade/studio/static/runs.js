// Runs: the list, which renews itself, and the curves of the runs that are ticked.
import { ask, at, data, digits, large, make, say, stateOf } from "./common.js";
import { chart } from "./chart.js";

const chosen = new Set();
let runs = data.runs;

const cell = (value, numeric) => make("td", { className: numeric ? "number" : "" }, value);
const state = (run) => {
  if (run.error) return make("span", { className: "soft" }, "damaged");
  return make("span", { className: run.running ? "live" : "soft" }, stateOf(run));
};
const act = async (name, what) => {
  try {
    await ask(`/api/runs/${encodeURIComponent(name)}/${what}`, {});
    say(at("said"));
    setTimeout(refresh, 600);
  } catch (error) {
    say(at("said"), error);
  }
};
const buttons = (run) => {
  if (run.error) return make("span", { className: "soft" }, run.error);
  const what = run.running ? "stop" : "resume";
  const go = make("button", { type: "button", hidden: run.finished && !run.running }, run.running ? "Stop" : "Resume");
  go.setAttribute("aria-label", `${go.textContent} ${run.name}`);
  go.onclick = () => act(run.name, what);
  const look = make("a", { href: `/look?model=${encodeURIComponent(run.name)}` }, "Look");
  const attempt = make("a", { href: `/try?model=${encodeURIComponent(run.name)}` }, "Try");
  return make("span", { className: "row" }, go, look, attempt);
};

const list = () => {
  if (!runs.length) {
    at("list").replaceChildren(make("div", { className: "empty" },
      make("h2", {}, "No runs yet"),
      make("p", {}, "Train a model on any file and it appears here, while it learns:"),
      make("pre", {}, "saccade train book.txt")));
    return;
  }
  const head = make("tr", {}, ...["", "Run", "Task", "Step", "Best", "State", ""].map((text, i) =>
    make("th", { scope: "col", className: i === 3 || i === 4 ? "number" : "" }, text)));
  const rows = runs.map((run) => {
    const tick = make("input", { type: "checkbox", checked: chosen.has(run.name), disabled: Boolean(run.error) });
    tick.setAttribute("aria-label", `Show the curves of ${run.name}`);
    tick.onchange = () => {
      if (tick.checked) chosen.add(run.name);
      else chosen.delete(run.name);
      draw();
    };
    const name = run.error ? run.name : make("a", { href: `/watch/${encodeURIComponent(run.name)}` }, run.name);
    const best = Number.isFinite(run.best) ? digits(run.best, 3) : "";
    return make("tr", {}, cell(tick), cell(name), cell(run.task ?? ""), cell(run.error ? "" : large(run.step), true),
      cell(best, true), cell(state(run)), cell(buttons(run)));
  });
  at("list").replaceChildren(make("div", { className: "scroll" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
};

const draw = async () => {
  at("curves").hidden = !chosen.size;
  if (!chosen.size) return;
  try {
    const found = await Promise.all([...chosen].map((name) => ask(`/api/runs/${encodeURIComponent(name)}`)));
    const over = at("over").value;
    const along = (record) => (over === "step" ? record.step : (record.seconds ?? record.elapsed) / 60);
    const lines = (pick, value) => found.map((run) => ({ name: run.name, points: pick(run).map((one) => [along(one), value(one)]) }));
    const scores = [...new Set(found.flatMap((run) => run.scores.flatMap(Object.keys)))]
      .filter((name) => !["step", "elapsed", "best", "pairs", "rows", "tokens", "questions", "sentences", "hidden"].includes(name));
    const x = over === "step" ? "step" : "minutes";
    at("charts").replaceChildren(
      chart(lines((run) => run.steps, (one) => one.loss), { title: "training loss", x }),
      ...scores.map((name) => chart(lines((run) => run.scores.filter((one) => name in one), (one) => one[name]), { title: `${name} (validation)`, x })),
      chart(found.map((run) => ({ name: run.name, points: run.speed })), { title: "tokens a second" }),
    );
  } catch (error) {
    say(at("said"), error);
  }
};

const refresh = async () => {
  try {
    runs = (await ask("/runs.json")).runs;
    list();
    if (runs.some((run) => run.running && chosen.has(run.name))) await draw();
    say(at("said"));
  } catch (error) {
    say(at("said"), error);
  }
};
at("over").onchange = draw;
for (const run of runs.filter((one) => !one.error).slice(0, 1)) chosen.add(run.name);
list();
draw();
setInterval(() => document.hidden || refresh(), 3000);
