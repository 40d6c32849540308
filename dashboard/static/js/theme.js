// Runs before the first paint, so that a remembered theme never flashes: keep it tiny and blocking.
"use strict";
{
  const read = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // Storage may be forbidden; the system's theme serves.
    }
  };
  const theme = read("theme");
  document.documentElement.dataset.theme = theme === "light" || theme === "dark" ? theme : "system";
  document.documentElement.dataset.zone = read("zone") === "local" ? "local" : "utc";
}
