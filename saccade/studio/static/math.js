// Operations that lessons and steps compute in the browser.
export const softmax = (scores, allowed) => {
  const masked = scores.map((score, i) => (allowed && !allowed[i] ? -Infinity : score));
  const largest = Math.max(...masked);
  if (largest === -Infinity) return masked.map(() => 0);
  const powers = masked.map((score) => Math.exp(score - largest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
};
export const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
export const times = (matrix, vector) => matrix.map((row) => dot(row, vector));
export const weightedSum = (weights, rows) => rows[0].map((_, i) => weights.reduce((sum, weight, r) => sum + weight * rows[r][i], 0));
export const entropy = (weights) => -weights.reduce((sum, weight) => sum + (weight > 0 ? weight * Math.log(weight) : 0), 0);

// Reproducible random numbers.
export const random = (seed) => {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  return { next, normal };
};
