// The progress of a long request: the server is asked for it, by the ticket that the request carries.
import { at, request, showError } from "./studio.js";

const EVERY = 400; // milliseconds; short requests are never asked about

// The form while it waits: its button says so, a bar fills, and Cancel appears when the request takes long.
export const showBusy = (on) => {
  at("submit").disabled = on;
  at("submit").textContent = on ? "Predicting\u2026" : "Predict";
  at("progress").hidden = !on;
  at("progress").removeAttribute("value"); // how far is not known yet
  if (document.activeElement === at("cancel")) at("submit").focus();
  at("cancel").hidden = true;
};
const showFraction = (fraction) => {
  at("submit").textContent = `Predicting\u2026 ${Math.round(100 * fraction)}%`;
  if (fraction) at("progress").value = fraction;
};
// Follow a request until end() is called; report(fraction) says how far it is. The Cancel button of the page, where there
// is one, ends the request, which then fails with what the studio says of it.
export const followProgress = (report = showFraction) => {
  const cancel = at("cancel");
  const ticket = Math.random().toString(36).slice(2);
  const timer = setInterval(async () => {
    try {
      const { fraction } = await request(`/api/progress/${ticket}`);
      if (!running) return;
      report(fraction);
      if (cancel) cancel.hidden = false;
    } catch {
      clearInterval(timer); // the request itself tells what is wrong
    }
  }, EVERY);
  let running = true;
  if (cancel) cancel.onclick = () => request(`/api/progress/${ticket}`, {}).catch(showError);
  return { ticket, end: () => { running = false; clearInterval(timer); } };
};
