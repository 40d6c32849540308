// Instants in UTC or local time, and ages that tick without asking the server.
"use strict";
window.fenceline = window.fenceline || {};
{
  const root = document.documentElement;
  let ahead = Number(document.body.dataset.now) - Date.now();

  /** The server's clock, in milliseconds: ages must not depend on the browser's. */
  fenceline.now = () => Date.now() + ahead;
  fenceline.setClock = (serverMs) => {
    ahead = serverMs - Date.now();
  };

  const two = (number) => String(number).padStart(2, "0");

  /** 42 s, 14 min 2 s, 3 h 5 min, 2 d 4 h: the words of fenceline/formatting.py, in whole seconds. */
  fenceline.age = (ms) => {
    const seconds = Math.max(0, Math.floor(ms / 1000));
    for (const [unit, name, below, lower] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
      if (seconds >= unit) {
        const rest = Math.floor((seconds % unit) / below);
        return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${lower}` : ""}`;
      }
    }
    return `${seconds} s`;
  };

  /** Milliseconds to add to an instant, so that a UTC display shows the chosen zone. */
  fenceline.shift = (ms) => (root.dataset.zone === "local" ? -new Date(ms).getTimezoneOffset() * 60000 : 0);
  const shifted = (ms) => new Date(ms + fenceline.shift(ms)).toISOString();

  /** 12:16:07.412, with the date when it is not today's. */
  fenceline.clock = (ms, fine) => {
    const iso = shifted(ms);
    const time = iso.slice(11, fine ? 23 : 19);
    return iso.slice(0, 10) === shifted(fenceline.now()).slice(0, 10) ? time : `${iso.slice(0, 10)} ${time}`;
  };

  fenceline.zone = () => {
    if (root.dataset.zone !== "local") return "UTC";
    const minutes = -new Date().getTimezoneOffset();
    const size = Math.abs(minutes);
    return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
  };

  const say = (element, words) => {
    if (element.textContent !== words) element.textContent = words;
  };

  /** Write every instant and age again; call it after a swap and after a change of zone. */
  fenceline.showTimes = () => {
    for (const element of document.querySelectorAll("time[data-instant]")) {
      say(element, fenceline.clock(Date.parse(element.dateTime), element.dataset.instant === "fine"));
    }
    for (const element of document.querySelectorAll("[data-zone-name]")) say(element, fenceline.zone());
    fenceline.showAges();
  };

  fenceline.showAges = () => {
    const now = fenceline.now();
    for (const element of document.querySelectorAll("time[data-age]")) {
      const old = now - Date.parse(element.dateTime);
      say(element, fenceline.age(element.dataset.age === "minute" && old > 60000 ? old - (old % 60000) : old));
    }
    for (const element of document.querySelectorAll("time[data-until]")) {
      const left = Date.parse(element.dateTime) - now;
      say(element, left > 0 ? fenceline.age(left) : element.dataset.until);
    }
  };

  fenceline.showTimes();
  setInterval(() => document.hidden || fenceline.showAges(), 1000);
  document.addEventListener("visibilitychange", () => document.hidden || fenceline.showAges());
}
