// The Runs page: the list, refreshed regularly, and the curves of the selected runs.
import { at, data, make, number, request, showError, stateOf, thousands } from "./studio.js";
import { chart } from "./chart.js";

const chosen = new Set();
let runs = data.runs;

const cell = (value, numeric) => make("td", { className: numeric ? "number" : "" }, value);
const state = (run) => {
  if (run.error) return make("span", { className: "soft" }, "damaged");
  return make("span", { className: run.running ? "live" : "soft" }, stateOf(run));
};
const act = async (name, action) => {
  try {
    await request(`/api/runs/${encodeURIComponent(name)}/${action}`, {});
    showError();
    setTimeout(refresh, 600);
  } catch (error) {
    showError(error);
  }
};
const buttons = (run) => {
  if (run.error) return make("span", { className: "soft" }, run.error);
  const button = make("button", { type: "button", hidden: run.finished && !run.running }, run.running ? "Stop" : "Resume");
  button.setAttribute("aria-label", `${button.textContent} ${run.name}`);
  button.onclick = () => act(run.name, run.running ? "stop" : "resume");
  const lookLink = make("a", { href: `/look?model=${encodeURIComponent(run.name)}` }, "Look");
  const tryLink = make("a", { href: `/try?model=${encodeURIComponent(run.name)}` }, "Try");
  return make("span", { className: "row" }, button, lookLink, tryLink);
};

const list = () => {
  if (!runs.length) {
    at("list").replaceChildren(make("div", { className: "empty" },
      make("h2", {}, "No runs yet"),
      make("p", {}, "Train a model on a file and follow it here:"),
      make("pre", {}, "saccade train book.txt")));
    return;
  }
  const head = make("tr", {}, ...["", "Run", "Task", "Step", "Best", "State", ""].map((text, i) =>
    make(text ? "th" : "td", { ...(text ? { scope: "col" } : {}), className: i === 3 || i === 4 ? "number" : "" }, text)));
  const rows = runs.map((run) => {
    const box = make("input", { type: "checkbox", checked: chosen.has(run.name), disabled: Boolean(run.error) });
    box.setAttribute("aria-label", `Show the curves of ${run.name}`);
    box.onchange = () => {
      if (box.checked) chosen.add(run.name);
      else chosen.delete(run.name);
      draw();
    };
    const name = run.error ? run.name : make("a", { href: `/watch/${encodeURIComponent(run.name)}` }, run.name);
    const best = Number.isFinite(run.best) ? number(run.best, 4) : "";
    return make("tr", {}, cell(box), cell(name), cell(run.task ?? ""), cell(run.error ? "" : thousands(run.step), true),
      cell(best, true), cell(state(run)), cell(buttons(run)));
  });
  at("list").replaceChildren(make("div", { className: "scroll" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
};

const draw = async () => {
  at("curves").hidden = !chosen.size;
  if (!chosen.size) return;
  try {
    const shown = await Promise.all([...chosen].map((name) => request(`/api/runs/${encodeURIComponent(name)}`)));
    const over = at("over").value;
    const xOf = (record) => (over === "step" ? record.step : (record.seconds ?? record.elapsed) / 60);
    const lines = (records, name) => shown.map((run) => ({ name: run.name, points: records(run).filter((record) => name in record).map((record) => [xOf(record), record[name]]) }));
    const names = (key) => [...new Set(shown.flatMap((run) => run[key]))];
    const x = over === "step" ? "step" : "minutes";
    const units = [...new Set(shown.map((run) => run.unit).filter(Boolean))].join(" or ") || "tokens";
    at("charts").replaceChildren(
      ...names("losses").map((name) => chart(lines((run) => run.steps, name), { title: `training ${name.replace("_", ", ")}`, x })),
      ...names("metrics").map((name) => chart(lines((run) => run.evaluations, name), { title: `${name} (validation)`, x })),
      chart(shown.map((run) => ({ name: run.name, points: run.throughput })), { title: `${units} per second` }),
    );
  } catch (error) {
    showError(error);
  }
};

const refresh = async () => {
  try {
    runs = (await request("/runs.json")).runs;
    list();
    if (runs.some((run) => run.running && chosen.has(run.name))) await draw();
    showError();
  } catch (error) {
    showError(error);
  }
};
at("over").onchange = draw;
for (const run of runs.filter((entry) => !entry.error).slice(0, 1)) chosen.add(run.name);
list();
draw();
setInterval(() => document.hidden || refresh(), 3000);
