// Keys, switches, copy buttons: the reader's changes of the page itself.
"use strict";
{
  const root = document.documentElement;
  const search = document.getElementById("search");
  const sheet = document.getElementById("keys");
  const off = document.getElementById("keys-off");
  const range = document.getElementById("time-range");
  let chord = 0;

  const remember = (key, value) => {
    try {
      localStorage.setItem(key, value);
    } catch {
      // Storage may be forbidden; then the choice is valid for this page only.
    }
  };
  const recall = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  };

  // --- Keys ---------------------------------------------------------------------------------------------------
  // A dialog that has just closed may briefly keep the focus.
  const typing = (element) =>
    element instanceof Element && (element.closest("input, textarea, select, [contenteditable]") || element.closest("dialog[open]"));

  const rows = () => [...document.querySelectorAll("a[data-row]")];
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest" });
  };

  const actions = {
    "/": () => (search ? search.focus() : fenceline.find?.()),
    x: () => document.activeElement.closest?.("tr")?.querySelector("[data-select-row]")?.click(),
    "?": () => sheet.showModal(),
    t: () => {
      range.open = true;
      range.querySelector("a").focus();
    },
    j: () => step(1),
    k: () => step(-1),
    p: () => fenceline.pause?.(),
    g: () => {
      chord = performance.now();
    },
  };

  const closeMenu = (element) => {
    const menu = element instanceof Element && element.closest("details.menu[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target === search) return search.blur();
    if (event.key === "Escape") closeMenu(event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing(event.target) || off?.checked) return;
    // By the instant of the key press: a page that draws its charts receives it later.
    const page = chord && event.timeStamp - chord < 1500 && document.querySelector(`a[data-go="${CSS.escape(event.key)}"]`);
    chord = 0;
    if (page) {
      event.preventDefault();
      return page.click();
    }
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  });

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("button");
    if (button?.dataset.opens) document.getElementById(button.dataset.opens).showModal();
    if (button?.dataset.copies) copy(button);
    if (button?.dataset.toggles) {
      const open = document.getElementById(button.dataset.toggles).toggleAttribute("data-open");
      button.setAttribute("aria-expanded", String(open));
    }
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  // A menu that opens beyond the right edge of the window is moved inside; "toggle" does not bubble.
  document.addEventListener("toggle", (event) => {
    const list = event.target.matches("details.menu[open]") && event.target.querySelector(".menu-list");
    if (!list) return;
    list.style.translate = "none";
    const beyond = list.getBoundingClientRect().right + 8 - document.documentElement.clientWidth;
    if (beyond > 0) list.style.translate = `${-beyond}px`;
  }, true);
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-goes]")) location.href = event.target.value;
  });

  const copy = async (button) => {
    const words = button.textContent;
    if (button.id === "copy-link") {
      document.getElementById(button.dataset.copies).textContent = fenceline.absoluteLink(button.dataset.lengthMs);
    }
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    } catch {
      // Browsers refuse the clipboard without TLS: select the text, so that Ctrl+C copies it.
      const source = document.getElementById(button.dataset.copies);
      source.closest("details")?.setAttribute("open", "");
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = words), 2000);
  };

  // --- Switches -----------------------------------------------------------------------------------------------
  const choice = (name, apply) => {
    for (const input of document.querySelectorAll(`input[name="${name}"]`)) {
      input.checked = input.value === root.dataset[name];
      input.addEventListener("change", () => {
        root.dataset[name] = input.value;
        remember(name, input.value);
        apply();
      });
    }
  };
  choice("theme", () => {});
  choice("zone", () => {
    fenceline.showTimes();
    fenceline.showLamp?.();
  });
  if (off) {
    off.checked = recall("keys") === "off";
    off.addEventListener("change", () => remember("keys", off.checked ? "off" : "on"));
  }

  // --- The tab's icon -----------------------------------------------------------------------------------------
  const icon = document.getElementById("icon");
  const showIcon = () => {
    const worst = document.getElementById("nav-findings")?.dataset.worst;
    const wanted = icon.dataset[worst || "calm"];
    if (wanted && icon.getAttribute("href") !== wanted) icon.setAttribute("href", wanted);
  };
  document.addEventListener("fenceline:swapped", showIcon);
  showIcon();
}
