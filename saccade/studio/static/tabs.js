// Tabs and their panel: one tab stop, arrow keys open the next tab, Home and End the first and the last.
// Returns a function that marks a tab as the open one.
export const tabs = (list, open) => {
  const all = [...list.querySelectorAll("[role=tab]")];
  for (const tab of all) tab.onclick = () => open(tab);
  list.onkeydown = (event) => {
    const at = all.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const tab = all[(to + all.length) % all.length];
    tab.focus();
    open(tab);
  };
  return (chosen) => {
    for (const tab of all) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
    }
    document.getElementById(chosen.getAttribute("aria-controls")).setAttribute("aria-labelledby", chosen.id);
  };
};
