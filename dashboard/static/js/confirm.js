// The typed confirmation: its button is off until the text is typed exactly, and when the plan has expired.
"use strict";
{
  const form = () => document.getElementById("confirm");

  // The server checks the same: without this script the button is simply always on.
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
    // A double click sends one request; the server executes a plan once whatever comes.
    if (form().dataset.sent !== undefined) return event.preventDefault();
    form().dataset.sent = "";
    setTimeout(show);
  });
  // Coming back by the browser's own way shows the form as it was left.
  addEventListener("pageshow", () => {
    const here = form();
    if (here) delete here.dataset.sent;
    show();
  });
  document.addEventListener("fenceline:swapped", show);

  // Nobody rings when a plan expires: the page asks for itself again.
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
