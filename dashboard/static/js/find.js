// The palette of Ctrl K: it opens from every page, and keys move through the results that htmx has fetched.
"use strict";
{
  const dialog = document.getElementById("find");
  const text = document.getElementById("find-text");
  const results = document.getElementById("find-results");

  let entered = false; // Enter was pressed before the results of this text came.

  const hits = () => [...(results?.querySelectorAll("[role=option]") ?? [])];
  const active = () => results.querySelector("[aria-selected=true]");

  const select = (hit) => {
    active()?.setAttribute("aria-selected", "false");
    text.setAttribute("aria-expanded", String(hits().length > 0));
    if (!hit) return text.removeAttribute("aria-activedescendant");
    hit.setAttribute("aria-selected", "true");
    hit.scrollIntoView({ block: "nearest" });
    text.setAttribute("aria-activedescendant", hit.id);
  };

  const step = (by) => {
    const all = hits();
    if (all.length) select(all[(all.indexOf(active()) + by + all.length) % all.length]);
  };

  fenceline.find = () => {
    if (!dialog.open && !document.querySelector("dialog[open]")) dialog.showModal();
    text.select();
  };

  document.addEventListener("keydown", (event) => {
    if (!dialog || event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    fenceline.find();
  });

  text?.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && text.value.trim()) {
      event.preventDefault();
      // The shown results may belong to an earlier text: then the first result of this text is opened once it arrives.
      if (results.dataset.of === text.value) active()?.click();
      else entered = true;
    }
  });
  text?.addEventListener("input", () => (entered = false));
  results?.addEventListener("htmx:afterSwap", ({ detail }) => {
    results.dataset.of = new URL(detail.xhr.responseURL).searchParams.get("q");
    select(hits()[0]);
    if (entered && results.dataset.of === text.value) active()?.click();
  });
}
