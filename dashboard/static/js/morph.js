// Keep the reader's state when a new page arrives, and announce its changes.
"use strict";
{
  // The colour is held by a delay: even steps of a fade would need a frame of the page 60 times a second.
  const FLASH = [{ backgroundColor: ["var(--flash)", "var(--flash)"] }, { delay: 300, duration: 1, fill: "backwards" }];
  const flashes = new WeakMap(); // row -> its animation
  const announcer = document.getElementById("announcer");
  let before = "";
  let changed = new Set();
  let swapped = false; // htmx tells of every new node.
  Idiomorph.defaults.ignoreActiveValue = true;
  // Most cells of a row that changed are equal; comparing a whole node costs less than morphing its parts.
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (node, fresh) =>
    !(node.isEqualNode(fresh) || (node instanceof Element && node.hasAttribute("data-keep")));
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => {
    if (name === "data-rev") changed.add(node);
    if (name === "checked" && node.form?.id === "selected-rows") return false;
    return !(name === "open" && (node.localName === "details" || node.localName === "dialog"));
  };
  // The text of a headline without its ages, which tick and are no news.
  const headline = () => {
    const copy = document.querySelector("[data-headline]")?.cloneNode(true);
    for (const age of copy?.querySelectorAll("[data-age]") || []) age.remove();
    return copy?.textContent.trim() || "";
  };
  document.addEventListener("htmx:beforeSwap", () => {
    before = headline();
    changed = new Set();
    swapped = false;
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (swapped) return;
    swapped = true;
    fenceline.showTimes();
    for (const row of changed) {
      const flash = flashes.get(row);
      if (flash) flash.currentTime = 0;
      else flashes.set(row, row.animate(...FLASH));
    }
    if (headline() !== before) announcer.textContent = document.querySelector("[data-headline]")?.textContent.trim() || "";
    document.dispatchEvent(new Event("fenceline:swapped"));
  });
}
