// The page of a run: its curves, its notes, and the attention of fixed examples during training.
import { at, data, make, request, showError, stateOf, thousands } from "./studio.js";
import { replaceCharts } from "./chart.js";
import { curveControls, curvesOf } from "./curves.js";
import { editNotes } from "./run_dialogs.js";
import { watchAttention } from "./watch_attention.js";

let run = data;
const name = encodeURIComponent(run.name);
const showAttention = watchAttention(name);
at("name").textContent = run.name;
at("look").href = `/look?model=${name}`;
at("try").href = `/try?model=${name}`;
at("replay").href = `/replay?model=${name}`;
at("replay").hidden = !run.replays;

const curves = () => replaceCharts(at("charts"), curvesOf([run]));
const describe = () => {
  const last = run.steps.at(-1);
  at("about").textContent = `${run.task.replaceAll("_", " ")} on ${run.data}${last ? `, step ${thousands(last.step)}` : ""}`;
  at("state").className = run.running ? "live" : "soft";
  at("state").textContent = stateOf(run);
  at("notes").textContent = run.notes;
  at("annotate").textContent = run.notes ? "Edit notes" : "Add notes";
  at("outputs").hidden = !run.samples.length;
  at("samples").replaceChildren(...run.samples.slice(-3).reverse().map((sample) =>
    make("p", {}, make("small", {}, `step ${thousands(sample.step)}  `), make("span", { dir: "auto", className: "output" }, sample.text))));
};
const refresh = async () => {
  try {
    run = await request(`/api/runs/${name}`);
    showError();
    describe();
    curves();
    await showAttention(run.snapshots);
  } catch (error) {
    showError(error);
  }
};
at("annotate").onclick = () => editNotes(run, async (notes) => {
  await request(`/api/runs/${name}/notes`, { notes });
  await refresh();
});
at("curve-controls").replaceChildren(...curveControls(curves));
describe();
curves();
showAttention(run.snapshots);
setInterval(() => document.hidden || !run.running || refresh(), 2000);
