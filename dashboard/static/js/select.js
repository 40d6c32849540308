// Rows selected for one action: their number, all rows of a page at once, and none.
"use strict";
{
  const rows = () => [...document.querySelectorAll("[data-select-row]")];

  const words = (number, most) => {
    if (!number) return "None selected";
    return number > most ? `${number} selected: one plan takes ${most} at most` : `${number} selected`;
  };

  const show = () => {
    const form = document.getElementById("selected-rows");
    if (!form) return;
    const all = rows();
    const number = all.filter((row) => row.checked).length;
    const most = Number(form.dataset.most);
    form.toggleAttribute("data-any", number > 0);
    form.querySelector("button").disabled = !number || number > most;
    const count = document.getElementById("selected-number");
    if (count.textContent !== words(number, most)) count.textContent = words(number, most);
    const whole = document.querySelector("[data-select-all]");
    whole.checked = number > 0 && number === all.length;
    whole.indeterminate = number > 0 && number < all.length;
  };

  const choose = (checked) => {
    for (const row of rows()) row.checked = checked;
    show();
  };

  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-select-all]")) choose(target.checked);
    else if (target.matches("[data-select-row]")) show();
  });
  document.addEventListener("click", ({ target }) => target.closest?.("[data-select-none]") && choose(false));
  document.addEventListener("fenceline:swapped", show);
  addEventListener("pageshow", show);
}
