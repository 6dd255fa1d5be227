// Generate token by token; the tokens before each one are shaded by the attention that led to it.
import { at, failure } from "./studio.js";
import { token } from "./views/tokens.js";

const shade = (strip, row, promptLength) => {
  const largest = Math.max(...row, 1e-6);
  const offset = row.length === promptLength ? 0 : strip.children.length - row.length; // self-attention, or a source
  [...strip.children].forEach((node, i) => node.style.setProperty("--opacity", (row[i - offset] ?? 0) / largest));
};

// Returns the generated text when it is complete.
export const generate = async (body) => {
  const strip = at("generated");
  strip.replaceChildren();
  at("generation").hidden = false;
  const add = (label, fresh) => {
    const node = token(label);
    node.classList.toggle("fade", fresh);
    strip.append(node);
  };
  const response = await fetch("/api/generate", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [unfinished, text, promptLength] = ["", "", 0];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return text;
    const complete = (unfinished + value).split("\n");
    unfinished = complete.pop();
    for (const line of complete) {
      const event = JSON.parse(line);
      if (event.error) throw new Error(event.error);
      if (event.prompt) {
        promptLength = event.prompt.length;
        event.prompt.forEach((label) => add(label, false));
      } else {
        text += event.text;
        shade(strip, event.row, promptLength);
        if (event.token) add(event.token, true);
      }
    }
  }
};
