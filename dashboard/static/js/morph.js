// What a new page leaves alone of what the reader holds, and what it announces.
"use strict";
{
  const announcer = document.getElementById("announcer");
  let before = "";
  let changed = new Set();
  Idiomorph.defaults.ignoreActiveValue = true;
  // Most cells of a row that changed are equal; comparing a whole node costs less than morphing its parts.
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (node, fresh) =>
    !(node.isEqualNode(fresh) || (node instanceof Element && node.hasAttribute("data-keep")));
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => {
    if (name === "data-rev") changed.add(node);
    if (name === "checked" && node.form?.id === "selected-rows") return false;
    return !(name === "open" && (node.localName === "details" || node.localName === "dialog"));
  };
  // What a headline reads without its ages: these tick, and are no news.
  const headline = () => {
    const copy = document.querySelector("[data-headline]")?.cloneNode(true);
    for (const age of copy?.querySelectorAll("[data-age]") || []) age.remove();
    return copy?.textContent.trim() || "";
  };
  document.addEventListener("htmx:beforeSwap", () => {
    before = headline();
    changed = new Set();
  });
  document.addEventListener("htmx:afterSwap", () => {
    fenceline.showTimes();
    for (const row of changed) {
      row.classList.remove("changed");
      requestAnimationFrame(() => row.classList.add("changed"));
    }
    if (headline() !== before) announcer.textContent = document.querySelector("[data-headline]")?.textContent.trim() || "";
    document.dispatchEvent(new Event("fenceline:swapped"));
  });
}
