// Scales of charts: linear and logarithmic, their ticks, and smoothing.
export const bounds = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

const linearTicks = (low, high, count) => {
  const raw = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
  const values = [];
  // Multiples, not sums of steps: 0.02 - 2 * 0.01 would be 3e-18 instead of 0.
  for (let number = Math.ceil(low / step); number * step <= high + step * 1e-9; number++) values.push(number * step);
  return values;
};
// Powers of ten; within two decades also 2 and 5 times a power; within less than one as on a linear scale.
const logTicks = (low, high, count) => {
  const decades = Math.log10(high / low);
  if (decades < 0.7) return linearTicks(low, high, count);
  const factors = decades > 2 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / 6));
  const values = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) {
    for (const factor of factors) values.push(factor * 10 ** power);
  }
  return values.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
};

// A scale of values to pixels from `start` to `end`: { at(value), invert(pixel), ticks(count) }.
export const scaleOf = (values, start, end, log) => {
  const [low, high] = bounds(values);
  const [from, to] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const span = to - from || 1;
  return {
    at: (value) => start + (((log ? Math.log(value) : value) - from) / span) * (end - start),
    invert: (pixel) => {
      const value = from + ((pixel - start) / (end - start)) * span;
      return log ? Math.exp(value) : value;
    },
    ticks: (count) => (log ? logTicks : linearTicks)(low, high, count),
  };
};

// The exponential moving average of points, without the pull towards 0 at its beginning: 0 leaves them as they are.
export const smooth = (points, weight) => {
  let [sum, share] = [0, 0];
  return points.map(([x, y]) => {
    sum = weight * sum + (1 - weight) * y;
    share = weight * share + (1 - weight);
    return [x, sum / share];
  });
};
