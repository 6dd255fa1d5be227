// The table of runs: sorted by any column, filtered by a text; drawn again only when something in it has changed.
import { make, number, stateOf, thousands } from "./studio.js";
import { metricName } from "./curves.js";

const time = (seconds) => {
  if (!seconds) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
};
const started = (created) => (created ?? "").slice(0, 16).replace("T", " ");
const state = (run) => (run.error ? "damaged" : stateOf(run));
const best = (run) => (Number.isFinite(run.best) ? `${number(run.best, 4)}${run.metric?.unit ? ` ${run.metric.unit}` : ""}` : "");
// Name, text in the row, value that it is sorted by; numeric columns begin with their largest value.
const COLUMNS = [
  { name: "Run", text: (run) => run.name },
  { name: "Task", text: (run) => (run.task ?? "").replaceAll("_", " ") },
  { name: "Metric", text: (run) => (run.metric ? metricName({ ...run.metric, unit: "" }) : "") },
  { name: "Best", text: best, value: (run) => run.best },
  { name: "Step", text: (run) => (run.error ? "" : thousands(run.step)), value: (run) => run.step },
  { name: "Time", text: (run) => time(run.seconds), value: (run) => run.seconds },
  { name: "Started", text: (run) => started(run.created) },
  { name: "State", text: state },
  { name: "Notes", text: (run) => run.notes ?? "" },
];
const isNumeric = (column) => Boolean(column.value);

const compare = (column, down) => (one, other) => {
  const [a, b] = [one, other].map(column.value ?? column.text);
  if (isNumeric(column)) {
    const [x, y] = [a, b].map((value) => (Number.isFinite(value) ? value : null));
    if (x === null || y === null) return (x === null) - (y === null); // runs without a value are last
    return down ? y - x : x - y;
  }
  if (!a || !b) return !a - !b;
  return a.localeCompare(b, "en", { numeric: true }) * (down ? -1 : 1);
};

// actions: { chosen, choose(), act(run, action), remove(run), annotate(run) }. Returns { show(runs, filter) }.
export const runTable = (container, actions) => {
  const sorting = { column: null, down: false, ...JSON.parse(sessionStorage.getItem("runs") ?? "{}") };
  let last = { runs: [], filter: "", drawn: "" };

  const control = (key, properties, text, action) => {
    const node = make("button", { type: "button", ...properties }, text);
    node.dataset.key = key;
    node.onclick = action;
    return node;
  };
  const heading = (column) => {
    const sorted = sorting.column === column.name;
    const sort = control(`sort ${column.name}`, { className: "quiet sort" }, `${column.name}${sorted ? (sorting.down ? " \u25be" : " \u25b4") : ""}`, () => {
      Object.assign(sorting, { column: column.name, down: sorted ? !sorting.down : isNumeric(column) });
      sessionStorage.setItem("runs", JSON.stringify(sorting));
      show(last.runs, last.filter);
    });
    const cell = make("th", { scope: "col", className: isNumeric(column) ? "number" : "" }, sort);
    if (sorted) cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    return cell;
  };
  const buttons = (run) => {
    if (run.error) return [make("span", { className: "soft" }, run.error), removeButton(run)];
    const action = run.running ? "Stop" : "Resume";
    const name = encodeURIComponent(run.name);
    const button = control(`act ${run.name}`, { hidden: run.finished && !run.running, "aria-label": `${action} ${run.name}` }, action,
      () => actions.act(run, action.toLowerCase()));
    const link = (page, text) => make("a", { href: `/${page}?model=${name}`, "aria-label": `${text} ${run.name}` }, text);
    return [button, link("look", "Look"), link("try", "Try"), removeButton(run)];
  };
  const removeButton = (run) => control(`delete ${run.name}`, {
    className: "quiet", disabled: Boolean(run.running), "aria-label": `Delete ${run.name}`, title: run.running ? "Stop it first" : "",
  }, "Delete\u2026", () => actions.remove(run));
  const content = (run, column) => {
    const text = column.text(run);
    if (column.name === "Run" && !run.error) return make("a", { href: `/watch/${encodeURIComponent(run.name)}` }, text);
    if (column.name === "State") return make("span", { className: run.running ? "live" : "soft" }, text);
    if (column.name === "Notes" && !run.error) {
      return control(`notes ${run.name}`, { className: "quiet notes", "aria-label": `Notes of ${run.name}: ${text || "none"}`, title: text }, text || "Add\u2026", () => actions.annotate(run));
    }
    return text;
  };
  const row = (run) => {
    const box = make("input", { type: "checkbox", checked: actions.chosen.has(run.name), disabled: Boolean(run.error), "aria-label": `Show the curves of ${run.name}` });
    box.dataset.key = `choose ${run.name}`;
    box.onchange = () => {
      if (box.checked) actions.chosen.add(run.name);
      else actions.chosen.delete(run.name);
      actions.choose();
    };
    return make("tr", {}, make("td", {}, box),
      ...COLUMNS.map((column) => make("td", { className: isNumeric(column) ? "number" : "" }, content(run, column))),
      make("td", {}, make("span", { className: "row actions" }, ...buttons(run))));
  };

  // Returns how many runs are shown, as a text; the focus stays on the same control.
  const show = (runs, filter) => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const textOf = (run) => [...COLUMNS.map((column) => column.text(run)), run.error ?? ""].join("\n").toLowerCase();
    const shown = runs.filter((run) => words.every((word) => textOf(run).includes(word)));
    const column = COLUMNS.find(({ name }) => name === sorting.column);
    if (column) shown.sort(compare(column, sorting.down));
    const drawn = JSON.stringify([shown, sorting]);
    if (drawn !== last.drawn) {
      const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
      const head = make("tr", {}, make("th", { scope: "col" }, make("span", { className: "spoken" }, "Curves")),
        ...COLUMNS.map(heading), make("th", { scope: "col" }, make("span", { className: "spoken" }, "Actions")));
      container.replaceChildren(make("div", { className: "scroll" },
        make("table", { className: "runs" }, make("thead", {}, head), make("tbody", {}, ...shown.map(row)))));
      if (focused) [...container.querySelectorAll("[data-key]")].find((node) => node.dataset.key === focused)?.focus();
    }
    last = { runs, filter, drawn };
    return shown.length === runs.length ? `${thousands(runs.length)} ${runs.length === 1 ? "run" : "runs"}` : `${thousands(shown.length)} of ${thousands(runs.length)} runs`;
  };
  return { show };
};
