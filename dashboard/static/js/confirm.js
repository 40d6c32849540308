// The typed confirmation: its button is disabled until the exact text is typed, and after the plan has expired.
"use strict";
{
  const form = () => document.getElementById("confirm");

  // The server checks the same: without this script the button is always enabled.
  const show = () => {
    const here = form();
    if (!here) return;
    const typed = here.querySelector("#confirm-typed");
    const same = typed.value === here.dataset.types;
    const late = fenceline.now() >= Number(here.dataset.until);
    here.querySelector("#confirm-send").disabled = !same || late || here.dataset.sent !== undefined;
    typed.toggleAttribute("data-same", same);
  };

  document.addEventListener("input", (event) => {
    if (form()?.contains(event.target)) show();
  });
  document.addEventListener("submit", (event) => {
    if (event.target !== form()) return;
    // A double click sends one request; in any case the server executes a plan once.
    if (form().dataset.sent !== undefined) return event.preventDefault();
    form().dataset.sent = "";
    setTimeout(show);
  });
  // The browser's Back shows the form in its last state.
  addEventListener("pageshow", () => {
    const here = form();
    if (here) delete here.dataset.sent;
    show();
  });
  document.addEventListener("fenceline:swapped", show);

  // There is no notification of a plan's expiry: the page refetches itself.
  let expired = false;
  setInterval(() => {
    const here = form();
    if (!here || expired || fenceline.now() < Number(here.dataset.until)) return;
    expired = true;
    show();
    htmx.trigger(here.closest("section[data-bell]"), "bell");
  }, 1000);
  show();
}
