// Dialogs about a run: delete it after a question that shows its name, and write notes.
import { make } from "./studio.js";

// work() is called when the form is sent; an error stays in the dialog, next to the button that caused it.
const dialog = (title, content, verb, work, className = "main") => {
  const message = make("div", {});
  const send = make("button", { type: "submit", className }, verb);
  const cancel = make("button", { type: "button" }, "Cancel");
  const form = make("form", {}, make("h2", {}, title), ...content, message, make("div", { className: "row" }, send, cancel));
  const node = make("dialog", { className: "card ask", "aria-label": title }, form);
  cancel.onclick = () => node.close();
  node.onclose = () => node.remove();
  form.onsubmit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      await work();
      node.close();
    } catch (error) {
      message.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
      send.disabled = false;
    }
  };
  document.body.append(node);
  node.showModal();
  return { cancel };
};

export const askToDelete = (run, remove) => dialog(
  `Delete ${run.name}?`,
  [make("p", {}, "The folder of the run ", make("b", { className: "name" }, run.name), " is deleted with its checkpoints, curves and notes. Its data and all other runs stay as they are. This cannot be undone.")],
  `Delete ${run.name}`, remove, "danger",
).cancel.focus();

export const editNotes = (run, save) => {
  const text = make("textarea", { rows: 5, maxLength: 4000, value: run.notes ?? "", "aria-label": `Notes of ${run.name}`, dir: "auto" });
  dialog(`Notes of ${run.name}`, [text], "Save", () => save(text.value));
  text.focus();
};
