// The page that tries the models: forms from the OpenAPI document, answers as they are generated, the same as curl.

const $ = (id) => document.getElementById(id);
const state = { document: null, calls: [], call: null, abort: null };
const MAIN = new Set(["prompt", "messages", "input"]);
const HIDDEN = new Set(["model", "user", "metadata", "safety_identifier", "prompt_cache_key", "stream_options"]);
const STREAMED = new Set(["/v1/completions", "/v1/chat/completions"]);
const FIRST = ["max_tokens", "max_completion_tokens", "max_new_tokens", "temperature", "top_p", "stop", "seed", "n", "stream"];
const NAMES = { "/v1/completions": "Completion", "/v1/chat/completions": "Chat", "/v1/embeddings": "Embeddings" };

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Schemas

function resolve(schema) {
  if (schema.$ref) return resolve(schema.$ref.split("/").slice(1).reduce((at, part) => at[part], state.document));
  const choices = (schema.anyOf ?? schema.oneOf ?? []).filter((one) => one.type !== "null");
  return choices.length ? { ...resolve(choices[0]), ...schema } : schema;
}

const bodySchema = (path) => resolve(state.document.paths[path].post.requestBody.content["application/json"].schema);

function findCalls() {
  const calls = [];
  for (const [path, methods] of Object.entries(state.document.paths)) {
    if (!methods.post) continue;
    const task = path.startsWith("/v1/tasks/");
    const names = task ? [decodeURIComponent(path.slice("/v1/tasks/".length))] : bodySchema(path).properties.model.enum;
    const title = task ? `Task: ${methods.post["x-saccade-task"].replaceAll("_", " ")}` : NAMES[path] ?? path;
    for (const model of names) calls.push({ model, path, title, task, summary: methods.post.summary });
  }
  return calls;
}

// Fields: each has a control and a function that returns its value, undefined if it is left out

function control(name, schema, id) {
  const shape = resolve(schema);
  const kind = shape["x-saccade-kind"];
  if (kind === "image" || kind === "audio") {
    const input = element("input", { type: "file", id, accept: `${kind}/*` });
    return { node: input, file: () => input.files[0], value: () => (input.files[0] ? readFile(input.files[0]) : undefined) };
  }
  if (shape.enum) {
    const options = ["", ...shape.enum].map((value) => element("option", { value, textContent: value || "default" }));
    const select = element("select", { id }, ...options);
    return { node: select, value: () => select.value || undefined };
  }
  if (shape.type === "boolean") {
    const box = element("input", { type: "checkbox", id, checked: name === "stream" });
    return { node: box, value: () => (box.checked ? true : undefined) };
  }
  if (shape.type === "number" || shape.type === "integer") {
    const step = shape.type === "integer" ? 1 : "any";
    const input = element("input", { type: "number", id, step, placeholder: shape.default ?? "" });
    if (shape.minimum !== undefined) input.min = shape.minimum;
    if (shape.maximum !== undefined) input.max = shape.maximum;
    return { node: input, value: () => (input.value === "" ? undefined : Number(input.value)) };
  }
  if (shape.type === "string") {
    const area = MAIN.has(name) || kind === "text";
    const input = element(area ? "textarea" : "input", { id, ...(area ? {} : { type: "text" }) });
    const empty = name === "prompt" || kind === "text" ? "" : undefined;
    return { node: input, value: () => input.value || empty };
  }
  const input = element("textarea", { id, placeholder: shape.type === "array" ? "[…]" : "{…}", spellcheck: false });
  return { node: input, value: () => (input.value.trim() ? JSON.parse(input.value) : undefined) };
}

function readFile(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function field(name, schema, prefix) {
  const id = `${prefix}-${name}`;
  const input = name === "messages" ? messages(id) : control(name, schema, id);
  const label = element("label", { htmlFor: id, textContent: name });
  const help = schema.description ?? (resolve(schema)["x-saccade-kind"] ? "" : resolve(schema).description ?? "");
  const note = element("small", { textContent: MAIN.has(name) ? "" : help });
  return { name, ...input, box: element("div", { className: "field" }, label, input.node, note) };
}

function messages(id) {
  const list = element("div", { id });
  const add = (role, content = "") => {
    const roles = ["system", "user", "assistant"].map((value) => element("option", { value, textContent: value }));
    const select = element("select", { ariaLabel: "role" }, ...roles);
    select.value = role;
    const area = element("textarea", { value: content, ariaLabel: `${role} message` });
    const remove = element("button", { type: "button", textContent: "×", title: "Remove this message" });
    const row = element("div", { className: "message" }, select, area, remove);
    remove.onclick = () => row.remove();
    list.append(row);
    return area;
  };
  add("user");
  const button = element("button", { type: "button", textContent: "Add a message" });
  button.onclick = () => add("user").focus();
  const rows = () => [...list.querySelectorAll(".message")];
  const read = (row) => ({ role: row.querySelector("select").value, content: row.querySelector("textarea").value });
  return { node: element("div", {}, list, button), value: () => rows().map(read), answered: (text) => { add("assistant", text); add("user"); } };
}

// The form

function show(call) {
  state.call = call;
  for (const button of $("endpoints").children) button.ariaPressed = String(button.call === call);
  $("summary").textContent = call.summary;
  const schema = bodySchema(call.path);
  const inputs = call.task ? resolve(schema.properties.inputs) : schema;
  const isInput = (name) => call.task || MAIN.has(name);
  const fields = (from, keep, prefix) =>
    Object.entries(from.properties ?? {}).filter(([name]) => keep(name)).map(([name, one]) => field(name, one, prefix));
  state.inputs = fields(inputs, isInput, "input");
  const options = call.task ? schema.properties.options : schema;
  state.options = fields(options, (name) => !HIDDEN.has(name) && (call.task || !MAIN.has(name)), "option");
  const rank = (one) => (FIRST.includes(one.name) ? FIRST.indexOf(one.name) : FIRST.length);
  state.options.sort((one, other) => rank(one) - rank(other));
  if (call.task && schema.properties.attention) state.options.push(field("attention", schema.properties.attention, "body"));
  $("inputs").replaceChildren(...state.inputs.map((one) => one.box));
  $("options").replaceChildren(...state.options.map((one) => one.box));
  $("more").hidden = !state.options.length;
  $("output").replaceChildren(element("p", { className: "soft", textContent: "Nothing was sent yet." }));
  for (const id of ["problem", "raw"]) $(id).hidden = true;
  $("figures").textContent = "";
  showCommand();
}

async function body() {
  const values = async (fields) => {
    const entries = await Promise.all(fields.map(async (one) => [one.name, await one.value()]));
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  };
  const inputs = await values(state.inputs);
  const { attention, ...options } = await values(state.options);
  if (!state.call.task) return { model: state.call.model, ...inputs, ...options, ...(attention ? { attention } : {}) };
  return { inputs, ...(Object.keys(options).length ? { options } : {}), ...(attention ? { attention } : {}) };
}

// Sending

const headers = (more = {}) => {
  const key = sessionStorage.getItem("key");
  return { ...more, ...(key ? { authorization: `Bearer ${key}` } : {}) };
};

async function send() {
  const call = state.call;
  const content = await body();
  state.abort = new AbortController();
  busy(true);
  $("problem").hidden = $("raw").hidden = true;
  $("figures").textContent = "";
  $("output").replaceChildren();
  const started = performance.now();
  try {
    const options = { method: "POST", headers: headers({ "content-type": "application/json" }), body: JSON.stringify(content), signal: state.abort.signal };
    const response = await fetch(call.path, options);
    if (!response.ok) throw new Error((await response.json()).error.message);
    if (content.stream) await readStream(response, started);
    else await readWhole(response, started, call);
  } catch (error) {
    if (error.name === "AbortError") $("figures").textContent = "stopped";
    else problem(error.message);
  } finally {
    busy(false);
  }
}

function busy(yes) {
  $("send").disabled = yes;
  $("stop").disabled = !yes;
}

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = false;
}

async function readStream(response, started) {
  const texts = [];
  let tokens = 0, first = 0, rest = "";
  const take = (line) => {
    if (!line.startsWith("data: ") || line === "data: [DONE]") return;
    const chunk = JSON.parse(line.slice(6));
    if (chunk.error) throw new Error(chunk.error.message);
    for (const choice of chunk.choices) {
      first ||= performance.now() - started;
      texts[choice.index] ??= $("output").appendChild(element("p", { className: "text" }));
      const text = choice.text ?? choice.delta.content ?? "";
      texts[choice.index].textContent += text;
      if (text) tokens += 1;
      if (choice.finish_reason) texts[choice.index].title = `finish reason: ${choice.finish_reason}`;
    }
  };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach(take);
  }
  const seconds = (performance.now() - started) / 1000;
  $("figures").textContent = `${tokens} chunks in ${seconds.toFixed(2)} s, the first after ${Math.round(first)} ms`;
  if (texts.length === 1) state.inputs.find((one) => one.answered)?.answered(texts[0].textContent);
}

async function readWhole(response, started, call) {
  const data = await response.json();
  const usage = data.usage ? `, ${data.usage.prompt_tokens} + ${data.usage.completion_tokens ?? 0} tokens` : "";
  $("figures").textContent = `${((performance.now() - started) / 1000).toFixed(2)} s${usage}`;
  $("output").replaceChildren(...rendered(data));
  $("json").textContent = JSON.stringify(data, null, 1).slice(0, 200000);
  $("raw").hidden = false;
  if (call.path === "/v1/chat/completions") state.inputs.find((one) => one.answered)?.answered(data.choices[0].message.content);
}

function rendered(data) {
  if (data.choices) return data.choices.map((one) => element("p", { className: "text", textContent: one.text ?? one.message.content }));
  if (data.data) return data.data.map((one) => vector(one.embedding));
  return data.predictions.flatMap((one) => output(one.output));
}

function vector(values) {
  const shown = typeof values === "string" ? `${values.slice(0, 60)}…` : values.slice(0, 8).map((value) => value.toFixed(4)).join(", ");
  return element("p", { className: "text", textContent: typeof values === "string" ? shown : `${values.length} numbers: ${shown}, …` });
}

function output(result) {
  if (result.probabilities && !Array.isArray(result.probabilities)) return [bars(Object.entries(result.probabilities).slice(0, 12))];
  if (result.vector) return [vector(result.vector)];
  if (result.png) return [element("img", { alt: result.text, src: `data:image/png;base64,${result.png}` })];
  return [element("p", { className: "text", textContent: result.text })];
}

function bars(entries) {
  const box = element("div", { className: "bars" });
  for (const [name, probability] of entries) {
    const bar = element("i");
    bar.style.width = `${100 * probability}%`;
    box.append(element("span", { textContent: name }), bar, element("span", { textContent: `${(100 * probability).toFixed(1)} %` }));
  }
  return box;
}

// The same as curl

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

async function command() {
  const content = await body();
  const files = state.inputs.filter((one) => one.file?.());
  const lines = [`curl ${location.origin}${state.call.path}`];
  if (sessionStorage.getItem("key")) lines.push(`-H "authorization: Bearer $SACCADE_API_KEY"`);
  if (files.length) {
    for (const one of state.inputs) {
      const value = one.file?.() ? `@${one.file().name}` : content.inputs[one.name];
      if (value !== undefined) lines.push(`-F ${quoted(`${one.name}=${value}`)}`);
    }
    if (content.options) lines.push(`-F ${quoted(`options=${JSON.stringify(content.options)}`)}`);
    if (content.attention) lines.push("-F attention=true");
  } else {
    lines.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(content))}`);
    if (content.stream) lines[0] = lines[0].replace("curl", "curl -N");
  }
  return lines.join(" \\\n  ");
}

async function showCommand() {
  try {
    $("shell").textContent = await command();
  } catch (error) {
    $("shell").textContent = error.message;
  }
}

async function copy() {
  await showCommand();
  try {
    await navigator.clipboard.writeText($("shell").textContent);
    $("note").textContent = "copied";
  } catch {
    $("command").open = true;
    $("note").textContent = "see below";
  }
  setTimeout(() => ($("note").textContent = ""), 2000);
}

// Start

async function connect() {
  const response = await fetch("/openapi.json", { headers: headers() });
  if (response.status === 401) {
    $("status").textContent = sessionStorage.getItem("key") ? "the key is wrong" : "locked";
    $("login").hidden = false;
    $("key").focus();
    return;
  }
  if (!response.ok) {
    $("status").textContent = (await response.json()).error.message;
    setTimeout(connect, 2000);
    return;
  }
  state.document = await response.json();
  state.calls = findCalls();
  const models = [...new Set(state.calls.map((call) => call.model))];
  $("status").textContent = `${models.length} ${models.length === 1 ? "model" : "models"} ready`;
  $("model").replaceChildren(...models.map((name) => element("option", { value: name, textContent: name })));
  $("login").hidden = true;
  $("tool").hidden = false;
  choose();
}

function choose() {
  const calls = state.calls.filter((call) => call.model === $("model").value);
  const buttons = calls.map((call) => Object.assign(element("button", { type: "button", textContent: call.title, onclick: () => show(call) }), { call }));
  $("endpoints").replaceChildren(...buttons);
  show(calls[0]);
}

function setTheme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  $("theme").textContent = dark ? "Light" : "Dark";
}

const stored = localStorage.getItem("theme");
setTheme(stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
$("theme").onclick = () => {
  const dark = !document.documentElement.classList.contains("dark");
  localStorage.setItem("theme", dark ? "dark" : "light");
  setTheme(dark);
};
$("login").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  connect();
};
$("document").onclick = async (event) => {
  event.preventDefault();
  const blob = new Blob([JSON.stringify(state.document, null, 1)], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(blob), download: "openapi.json" });
  link.click();
  URL.revokeObjectURL(link.href);
};
$("model").onchange = choose;
$("form").onsubmit = (event) => {
  event.preventDefault();
  send().catch((error) => problem(error.message));
};
$("form").oninput = showCommand;
$("stop").onclick = () => state.abort?.abort();
$("curl").onclick = copy;
connect();
