// Requests of the Generate page: a stream of lines, and questions about a continuation.
import { decodeBytes, decodeWeights, failure, request } from "./studio.js";

// Calls line(event) for each line; returns when the stream has ended. An error of the studio is thrown.
export const streamLines = async (body, line, signal) => {
  let response;
  try {
    response = await fetch("/api/generate", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) return;
    throw new Error("The studio does not respond. Is `saccade studio` still running?", { cause: error });
  }
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unfinished = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal?.aborted) return;
      throw new Error("The stream of tokens broke off. Is `saccade studio` still running?", { cause: error });
    }
    if (part.done) return;
    const complete = (unfinished + part.value).split("\n");
    unfinished = complete.pop();
    for (const text of complete) {
      const event = JSON.parse(text);
      if (event.error) throw new Error(event.error);
      line(event);
    }
  }
};

export const decodeRow = (text) => decodeWeights(decodeBytes(text).buffer);
const address = (id, part = "") => `/api/generations/${encodeURIComponent(id)}${part}`;
export const steer = (id, body) => request(address(id), body);
export const distribution = (id, step, options) => request(address(id, "/distribution"), { step, options });

// Fetch the rows first..last (exclusive) of a map; a long text takes several requests.
export const fetchRows = async (id, map, head, first, last) => {
  const rows = new Map();
  while (first < last) {
    const answer = await request(address(id, "/rows"), { map, head, first, last });
    const cells = decodeRow(answer.cells);
    for (let row = first; row < answer.last; row++) rows.set(row, cells.subarray((row - first) * answer.columns, (row - first + 1) * answer.columns));
    first = answer.last;
    if (answer.last >= last || !answer.last) break;
  }
  return rows;
};
