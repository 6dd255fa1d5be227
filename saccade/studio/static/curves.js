// The curves of runs: how they are drawn, alike on every page, and a chart for each loss and metric.
import { make } from "./studio.js";
import { chart } from "./chart.js";

const style = { over: "step", smoothing: 0, logX: false, logY: false, ...JSON.parse(localStorage.getItem("curves") ?? "{}") };

// The controls: over steps or minutes, smoothing, logarithmic axes; redraw() is called when one of them changes.
export const curveControls = (redraw) => {
  const change = (name, value) => {
    style[name] = value;
    localStorage.setItem("curves", JSON.stringify(style));
    redraw();
  };
  const over = make("select", { id: "over" }, new Option("steps", "step"), new Option("minutes", "seconds"));
  over.value = style.over;
  over.onchange = () => change("over", over.value);
  const smoothing = make("input", { type: "range", id: "smoothing", min: 0, max: 0.99, step: 0.01, value: style.smoothing });
  const shown = make("output", { htmlFor: "smoothing" }, String(style.smoothing));
  smoothing.oninput = () => {
    shown.textContent = smoothing.value;
    change("smoothing", Number(smoothing.value));
  };
  const box = (name, text) => {
    const input = make("input", { type: "checkbox", id: name, checked: style[name] });
    input.onchange = () => change(name, input.checked);
    return make("label", {}, input, ` ${text}`);
  };
  return [
    make("label", {}, "Over ", over),
    make("label", { className: "slider", title: "Exponential moving average; the curve as it is stays visible" }, "Smoothing ", smoothing, shown),
    box("logX", "log x"), box("logY", "log y"),
  ];
};

const arrow = ({ higher_is_better: higher }) => (higher === true ? " \u2191" : higher === false ? " \u2193" : "");
export const metricName = (metric) => `${metric.label}${metric.unit ? ` (${metric.unit})` : ""}${arrow(metric)}`;

// The charts of some runs, in the order of their colours; each has the runs that recorded what it shows.
export const curvesOf = (runs) => {
  const { over, smoothing, logX, logY } = style;
  const options = { x: over === "step" ? "step" : "minutes", logX, logY, smoothing };
  const xOf = (record) => (over === "step" ? record.step : (record.seconds ?? record.elapsed) / 60);
  const lines = (key, name) => runs.map((run) => ({
    name: run.name,
    points: run[key].filter((record) => name in record && Number.isFinite(xOf(record))).map((record) => [xOf(record), record[name]]),
  }));
  const names = (key) => [...new Set(runs.flatMap((run) => run[key]))];
  const titleOf = (name) => metricName(runs.find((run) => name in run.names).names[name]);
  const units = [...new Set(runs.map((run) => run.unit).filter(Boolean))].join(" or ") || "tokens";
  const secondsAt = (run) => new Map(run.steps.map((record) => [record.step, record.seconds]));
  const speed = runs.map((run) => {
    const seconds = over === "step" ? null : secondsAt(run);
    return { name: run.name, points: run.throughput.map(([step, value]) => [seconds ? seconds.get(step) / 60 : step, value]).filter(([at]) => Number.isFinite(at)) };
  });
  return [
    ...names("losses").map((name) => chart(lines("steps", name), { ...options, title: `${titleOf(name)}, training` })),
    ...names("metrics").map((name) => chart(lines("evaluations", name), { ...options, title: `${titleOf(name)}, validation`, smoothing: 0 })),
    chart(speed, { ...options, title: `${units} per second` }),
  ];
};
