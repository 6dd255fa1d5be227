// Errors of a form: a message that begins with the name of an input or an option stands below that control.
import { make, showError } from "./studio.js";

export const clearErrors = (form) => {
  for (const control of form.querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-describedby");
  }
  for (const message of form.querySelectorAll(".field-error")) message.remove();
  showError();
};
// The control that a message is about: "temperature must be ...".
const controlOf = (form, message) => [...form.querySelectorAll("[name]")].find(({ name }) => message.startsWith(`${name} `));

export const placeError = (form, error) => {
  clearErrors(form);
  const message = error.message ?? String(error);
  const control = controlOf(form, message);
  if (!control) return showError(error);
  const node = make("p", { className: "error field-error", role: "alert", id: `error-${control.name}` }, message);
  const details = control.closest("details");
  if (details) details.open = true;
  (control.closest(".drop, label") ?? control).after(node);
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-describedby", node.id);
  node.scrollIntoView({ block: "nearest" });
  return undefined;
};
