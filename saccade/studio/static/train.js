// New training: choose data, see what is found in them, choose task, preset and length, and start.
import { at, data, make, request, showError, thousands } from "./studio.js";
import { followProgress } from "./progress.js";

const FILE_BYTES = 8 << 20;
const FIELDS = ["data", "task", "preset", "minutes", "name"];
const COLUMNS = ["text_column", "second_column", "label_column", "source", "target"];
const CONTROLS = { data: "path" }; // where the control is not named as its field
let upload = ""; // reference of the uploaded file; empty: the path counts
let inspected = 0; // number of the last inspection
let ready = false;
let last = ""; // settings of the last inspection

const clearErrors = () => {
  showError();
  for (const field of FIELDS) {
    at(`error-${field}`).replaceChildren();
    at(CONTROLS[field] ?? field).removeAttribute("aria-invalid");
  }
};
const showFieldError = ({ field, message }) => {
  if (!FIELDS.includes(field)) return showError(message);
  const control = at(CONTROLS[field] ?? field);
  if (field === "data" && /column|--source/.test(message)) at("columns").open = true;
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-errormessage", `error-${field}`);
  return showError(message, `error-${field}`);
};
// As `request`, with the field that an error is about.
const send = async (path, body) => {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new Error("The studio does not respond. Is `saccade studio` still running?");
  }
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const answer = isJson ? await response.json() : { error: await response.text() };
  if (!response.ok) throw Object.assign(new Error(answer.error), { field: answer.field });
  return answer;
};
const settings = () => ({
  ...(upload ? { upload } : { path: at("path").value.trim() }),
  task: at("task").value, preset: at("preset").value, minutes: Number(at("minutes").value), name: at("name").value.trim(),
  ...Object.fromEntries(COLUMNS.map((column) => [column, at(column).value.trim()])),
});
const chosen = () => Boolean(upload || at("path").value.trim());
const setReady = (value) => {
  ready = value;
  at("start").disabled = !value;
};

const offerPresets = (presets) => {
  const before = at("preset").value;
  at("preset").replaceChildren(new Option("default", ""), ...presets.map((name) => new Option(name)));
  at("preset").value = presets.includes(before) ? before : "";
  at("preset").disabled = !presets.length;
};
const showFound = ({ notes, parameters, task, name }) => {
  at("found").replaceChildren(
    make("ul", { className: "report" }, ...notes.map((note) => make("li", {}, note))),
    make("p", {}, "A model for ", make("b", {}, task.replaceAll("_", " ")), ` with ${thousands(parameters)} parameters, trained as `, make("b", { className: "name" }, name), "."),
  );
};

// Read the data as `saccade train` does. Of several inspections the last counts.
const inspect = async () => {
  const asked = JSON.stringify(settings());
  if (asked === last) return; // leaving a field that was typed into tells the same again
  last = asked;
  clearErrors();
  setReady(false);
  inspected += 1;
  if (!chosen()) return;
  const number = inspected;
  at("busy").textContent = "Reading the data\u2026";
  const { ticket, end } = followProgress((fraction) => {
    if (number === inspected) at("busy").textContent = `Reading the data\u2026 ${Math.round(100 * fraction)} %`;
  });
  try {
    const found = await send("/api/train/inspect", { ...settings(), ticket });
    if (number !== inspected) return;
    if (!at("task").value) {
      at("task").options[0].text = `chosen by the data: ${found.task.replaceAll("_", " ")}`;
      at("task").dataset.guessed = found.task;
    }
    offerPresets(found.presets);
    showFound(found);
    setReady(true);
  } catch (error) {
    if (number !== inspected) return;
    showFieldError(error);
    at("found").replaceChildren(make("p", { className: "soft" }, "Nothing yet: see the message beside the settings."));
  } finally {
    end();
    if (number === inspected) at("busy").textContent = "";
  }
};

const read = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(Object.assign(new Error(`${file.name} cannot be read; choose another file`), { field: "data" }));
  reader.readAsDataURL(file);
});
const take = async (file) => {
  clearErrors();
  setReady(false);
  try {
    if (file.size > FILE_BYTES) {
      const size = (file.size / (1 << 20)).toFixed(1);
      throw Object.assign(new Error(`${file.name} must have at most ${FILE_BYTES >> 20} MB, but has ${size} MB; put it into ${data.folder} and choose it there`), { field: "data" });
    }
    ({ upload } = await send("/api/train/upload", { name: file.name, url: await read(file) }));
    at("path").value = "";
    at("uploaded").textContent = file.name;
    await inspect();
  } catch (error) {
    upload = at("uploaded").textContent = "";
    showFieldError(error);
  }
};
const forgetUpload = () => {
  upload = at("uploaded").textContent = at("file").value = "";
};

at("folder").textContent = data.folder;
at("files").append(...data.files.map((value) => make("option", { value })));
at("offered").textContent = data.files.length ? `${thousands(data.files.length)} found; type to choose` : "no data files found here";
at("task").append(new Option("chosen by the data", ""), ...data.tasks.map(({ name, summary }) => new Option(`${name.replaceAll("_", " ")}: ${summary}`, name)));
at("minutes").value = data.minutes;
offerPresets([]);

at("path").oninput = () => {
  forgetUpload();
  last = "";
  setReady(false);
  if (data.files.includes(at("path").value)) inspect();
};
at("path").onchange = inspect;
at("file").onchange = () => at("file").files[0] && take(at("file").files[0]);
at("task").onchange = async () => {
  at("preset").value = "";
  if (at("task").value) offerPresets((await request(`/api/tasks/${at("task").value}`)).presets);
  await inspect();
};
// A preset belongs to a task: one of the task that the data have chosen makes that choice explicit.
at("preset").onchange = () => {
  if (!at("task").value) at("task").value = at("task").dataset.guessed;
  return inspect();
};
for (const column of COLUMNS) at(column).onchange = () => inspect();
at("name").onchange = at("minutes").onchange = () => chosen() && inspect();
const over = (on) => (event) => {
  event.preventDefault();
  at("drop").classList.toggle("over", on);
};
Object.assign(at("drop"), { ondragover: over(true), ondragenter: over(true), ondragleave: over(false) });
at("drop").ondrop = (event) => {
  over(false)(event);
  if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
};
at("form").onsubmit = async (event) => {
  event.preventDefault();
  if (!ready) {
    last = "";
    return inspect();
  }
  clearErrors();
  setReady(false);
  at("busy").textContent = "Starting\u2026";
  try {
    const { name } = await send("/api/train/start", settings());
    location.href = `/watch/${encodeURIComponent(name)}`;
  } catch (error) {
    at("busy").textContent = "";
    setReady(true);
    showFieldError(error);
  }
  return undefined;
};
document.body.dataset.ready = "1";
