// The view of a time axis: the spectrogram of the sound, the values over time below it, and the times of a letter.
import { digits, drawPixels, make } from "../studio.js";

const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60]; // seconds between two marks
const MOST = 12; // marks

// Seconds of the whole axis.
export const lengthOf = (axis) => axis.labels.length * axis.seconds_per_frame;

const ticks = (seconds) => {
  const step = TICKS.find((candidate) => seconds / candidate <= MOST) ?? TICKS.at(-1);
  return Array.from({ length: Math.floor(seconds / step) + 1 }, (_, i) => {
    const mark = make("span", {}, String(Number((i * step).toFixed(1))));
    mark.style.left = `${(100 * i * step) / seconds}%`;
    return mark;
  });
};

// The same parameters as the view of tokens, and the axis itself. mark: { start, end } in seconds, of a letter.
export const show = ({ axis, labels, values = null, largest = 1, selected = -1, select = null, mark = null }) => {
  const seconds = lengthOf(axis);
  const image = axis.image ? [make("img", { src: axis.image, alt: "spectrogram, low frequencies at the bottom", draggable: false })] : [];
  const canvas = make("canvas", { className: "weights", hidden: !values });
  if (values) drawPixels(canvas, Array.from(values, (value) => value / largest), labels.length);
  const box = make("div", { className: "said", hidden: !mark });
  if (mark) Object.assign(box.style, { left: `${(100 * mark.start) / seconds}%`, width: `${(100 * (mark.end - mark.start)) / seconds}%` });
  const sound = make("div", { className: "sound" }, ...image, canvas, box);
  Object.assign(sound.dataset, { kind: "time", selected });
  sound.setAttribute("role", select ? "slider" : "img");
  sound.setAttribute("aria-label", `${digits(seconds)} seconds of sound${mark ? `, marked from ${digits(mark.start)} to ${digits(mark.end)}` : ""}`);
  const frameAt = (event) => {
    const area = sound.getBoundingClientRect();
    return Math.min(labels.length - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * labels.length)));
  };
  sound.onpointermove = (event) => {
    const i = frameAt(event);
    sound.title = values ? `${labels[i]} s: ${digits(values[i], 4)}` : `${labels[i]} s`;
  };
  if (select) {
    sound.tabIndex = 0;
    sound.setAttribute("aria-valuenow", String(Math.max(0, selected)));
    sound.setAttribute("aria-valuemax", String(labels.length - 1));
    sound.onclick = (event) => select(frameAt(event));
    sound.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      select(Math.min(labels.length - 1, Math.max(0, selected + step)));
    };
  }
  return make("div", { className: "time-view" }, sound, make("div", { className: "ticks", ariaHidden: "true" }, ...ticks(seconds)));
};

// Play the part of the sound in the form between two times, in seconds.
export const playPart = ({ start, end }) => {
  const player = document.querySelector("#inputs audio.preview");
  if (!player?.src) return;
  player.currentTime = start;
  player.ontimeupdate = () => {
    if (player.currentTime < end) return;
    player.pause();
    player.ontimeupdate = null;
  };
  player.dataset.played = `${start} ${end}`;
  player.play().catch(() => {}); // a browser may refuse to play without a click
};
