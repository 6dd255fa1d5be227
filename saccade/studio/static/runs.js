// The Runs page: the list, refreshed regularly, and the curves of the selected runs.
import { at, data, request, showError } from "./studio.js";
import { replaceCharts } from "./chart.js";
import { curveControls, curvesOf } from "./curves.js";
import { askToDelete, editNotes } from "./run_dialogs.js";
import { runTable } from "./run_table.js";

const chosen = new Set();
let runs = data.runs;

const act = async (name, action, body = {}) => {
  await request(`/api/runs/${encodeURIComponent(name)}/${action}`, body);
  showError();
};
const report = (work) => work.catch(showError);
const table = runTable(at("list"), {
  chosen,
  choose: () => report(draw()),
  act: (run, action) => report(act(run.name, action).then(() => setTimeout(refresh, 600))),
  remove: (run) => askToDelete(run, async () => {
    await act(run.name, "delete", { confirm: run.name });
    chosen.delete(run.name);
    await refresh();
    await draw();
  }),
  annotate: (run) => editNotes(run, async (notes) => {
    await act(run.name, "notes", { notes });
    await refresh();
  }),
});

const list = () => {
  at("none").hidden = Boolean(runs.length);
  at("list").hidden = at("tools").hidden = !runs.length;
  at("counted").textContent = table.show(runs, at("filter").value);
};
const draw = async () => {
  at("curves").hidden = !chosen.size;
  if (!chosen.size) return;
  const names = [...chosen];
  const shown = await Promise.all(names.map((name) => request(`/api/runs/${encodeURIComponent(name)}`)));
  if (names.join("\n") === [...chosen].join("\n")) replaceCharts(at("charts"), curvesOf(shown));
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
at("filter").oninput = list;
at("curve-controls").replaceChildren(...curveControls(() => report(draw())));
for (const run of runs.filter((entry) => !entry.error).slice(0, 1)) chosen.add(run.name);
list();
report(draw());
setInterval(() => document.hidden || refresh(), 3000);
