// Several controls as one tab stop: arrow keys move the focus between them, Home and End to the first and the last.
const CHOSEN = "[aria-pressed=true], [aria-selected=true], [aria-current=true], .on";
const listening = new WeakSet();

const centre = (node) => {
  const { left, top, width, height } = node.getBoundingClientRect();
  return [left + width / 2, top + height / 2];
};
// The nearest control in the next row, upwards or downwards.
const beside = (items, node, direction) => {
  const [x, y] = centre(node);
  const ahead = items.map((item) => ({ item, at: centre(item) })).filter(({ at }) => (at[1] - y) * direction > 4);
  const row = Math.min(...ahead.map(({ at }) => Math.abs(at[1] - y)));
  const candidates = ahead.filter(({ at }) => Math.abs(at[1] - y) < row + 4);
  candidates.sort((a, b) => Math.abs(a.at[0] - x) - Math.abs(b.at[0] - x));
  return candidates[0]?.item;
};
const next = (items, node, key) => {
  const at = items.indexOf(node);
  if (key === "ArrowRight") return items[at + 1];
  if (key === "ArrowLeft") return items[at - 1];
  if (key === "ArrowDown") return beside(items, node, 1);
  if (key === "ArrowUp") return beside(items, node, -1);
  return { Home: items[0], End: items.at(-1) }[key];
};

// Call it again when the controls, or the chosen one among them, are others.
export const rove = (container, selector) => {
  const items = () => [...container.querySelectorAll(selector)];
  const settle = (chosen) => {
    for (const item of items()) item.setAttribute("tabindex", item === chosen ? "0" : "-1");
  };
  const focused = items().find((item) => item === document.activeElement);
  settle(focused ?? items().find((item) => item.matches(CHOSEN)) ?? items()[0]);
  if (listening.has(container)) return;
  listening.add(container);
  container.addEventListener("focusin", ({ target }) => {
    const item = target.closest(selector);
    if (item) settle(item);
  });
  container.addEventListener("keydown", (event) => {
    const item = event.target.closest(selector);
    if (!item || !/^(Arrow|Home|End)/.test(event.key)) return;
    event.preventDefault();
    next(items(), item, event.key)?.focus();
  });
};
