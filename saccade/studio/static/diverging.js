// Colours of a signed value: blue below zero, white at zero, red above, in light and dark alike. The stops are those of
// RdBu of ColorBrewer, which can be told apart with any colour blindness.
const STOPS = [[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [255, 255, 255],
  [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]];

// value: from -1 to 1.
export const divergingColour = (value) => {
  const position = ((Math.min(1, Math.max(-1, value)) + 1) / 2) * (STOPS.length - 1);
  const low = Math.min(Math.floor(position), STOPS.length - 2);
  return STOPS[low].map((part, i) => Math.round(part + (STOPS[low + 1][i] - part) * (position - low)));
};
// Black or white, whichever can be read on a colour.
export const readableOn = (colour) => {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
};
// Draw values on a canvas, one pixel per cell; `largest` is the strongest colour.
export const drawDiverging = (canvas, values, width, largest) => {
  [canvas.width, canvas.height] = [Math.max(1, width), Math.max(1, values.length / width)];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < values.length; i++) image.data.set([...divergingColour(values[i] / largest), 255], 4 * i);
  pen.putImageData(image, 0, 0);
};
export const drawDivergingScale = (canvas) => drawDiverging(canvas, Float32Array.from({ length: 129 }, (_, i) => (i - 64) / 64), 129, 1);
export const signed = (value, count = 2) => `${value < 0 ? "\u2212" : value > 0 ? "+" : ""}${Math.abs(value).toFixed(count)}`;
