// The view of a step axis: what was there at the selected step of an episode, and the steps in a row.
import { make } from "../studio.js";
import * as tokens from "./tokens.js";

const SIDE = 20; // rem of a square frame; others have the same area
const DRAWN = 400; // pixels: a frame that is smaller is a drawing, which is enlarged without smoothing

// The same parameters as the view of tokens, and the axis itself; without frames its steps are tokens.
export const show = ({ axis, side = SIDE, ...view }) => {
  const strip = tokens.show(view);
  const src = axis.frames?.[Math.max(0, view.selected ?? 0)];
  if (!src) return strip;
  const [width, height] = axis.size;
  const image = make("img", { src, draggable: false, className: Math.max(...axis.size) < DRAWN ? "coarse" : "", alt: `step ${(view.selected ?? 0) + 1}: ${view.labels[view.selected ?? 0]}` });
  const frame = make("div", { className: "picture frame" }, image);
  Object.assign(frame.style, { aspectRatio: String(width / height), width: `${(side * Math.sqrt(width / height)).toFixed(1)}rem` });
  frame.dataset.kind = "steps";
  return make("div", { className: "replay" }, frame, strip);
};
