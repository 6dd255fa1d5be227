// What scrolls can be scrolled with the keyboard: a part that is larger than its frame, and has no control in it, takes the focus.
const SCROLLERS = ".scroll, .output, .scores, .strip, .heads, .ranked, pre, [data-scrolls]";
const CONTROLS = "a[href], button:not(:disabled), input:not(:disabled), select, textarea, [tabindex='0']";

const settle = (node) => {
  const larger = node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1;
  const wanted = larger && !node.querySelector(CONTROLS);
  if (wanted === node.hasAttribute("data-focusable")) return;
  node.toggleAttribute("data-focusable", wanted);
  if (wanted) node.tabIndex = 0;
  else node.removeAttribute("tabindex");
};
let waiting = 0;
const later = () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => document.querySelectorAll(SCROLLERS).forEach(settle), 120);
};
new MutationObserver(later).observe(document.body, { childList: true, subtree: true, attributeFilter: ["hidden", "open"] });
addEventListener("resize", later);
later();
