// The progress of a long request: the server is asked for it, by the ticket that the request carries.
import { request } from "./studio.js";

const EVERY = 400; // milliseconds; short requests are never asked about

// show(fraction) is called while the request runs. Returns the ticket, a function that ends the questions, and one that
// cancels the request: it then fails with what the studio says of it.
export const followProgress = (show) => {
  const ticket = Math.random().toString(36).slice(2);
  const timer = setInterval(async () => {
    try {
      const { fraction } = await request(`/api/progress/${ticket}`);
      if (running) show(fraction);
    } catch {
      clearInterval(timer); // the request itself tells what is wrong
    }
  }, EVERY);
  let running = true;
  const cancel = () => request(`/api/progress/${ticket}`, {});
  return { ticket, cancel, end: () => { running = false; clearInterval(timer); } };
};
