// Change notifications over the socket, a refetch over HTTP for each; morph.js keeps the reader's state.
"use strict";
window.fenceline = window.fenceline || {};
{
  const COLLECTORS_GAP = 1000; // They ring several times a second, and mostly move a clock.
  const REST = 1.4; // A page that took long twice is asked for less often; a server that just started is slow once.
  const SAFETY_POLL = 60000;
  const DOWN_POLL = 5000;
  const LONGEST_BACKOFF = 10000;
  const POINTER_REST = 600;

  const lamp = document.getElementById("live");
  const lampWords = document.getElementById("live-words");
  const pauseButton = document.getElementById("pause");
  const announcer = document.getElementById("announcer");
  const sections = () => document.querySelectorAll("section[data-bell]");

  let socket = null;
  let socketUp = false;
  let everUp = false;
  let backoff = 500;
  let paused = false;
  let waiting = 0;
  let answered = true;
  let pointerMoved = 0;
  let pointerDown = false;
  let asOf = Number(lamp.dataset.asOf) || 0;
  const staleAfter = Number(lamp.dataset.staleMs);
  const pages = new Map(); // section -> {pace, took, timer, flying, dirty, last, tag}

  const announce = (words) => (announcer.textContent = words);

  // --- The text of the lamp ------------------------------------------------------------------------------------
  const stale = () => asOf > 0 && fenceline.now() - asOf > staleAfter;

  const describe = () => {
    const seen = asOf ? fenceline.clock(asOf, true) + " " + fenceline.zone() : "";
    const every = `polling every ${DOWN_POLL / 1000} s`;
    if (paused) return ["paused", waiting ? `paused · ${waiting} ${waiting === 1 ? "change" : "changes"} waiting` : "paused"];
    if (!answered) return ["polling", `no answer from the server · ${every}`];
    if (!socketUp && !everUp && backoff <= 500) return ["connecting", seen ? `as of ${seen}` : "connecting"];
    if (!socketUp) return ["polling", `live socket down · ${every}`];
    if (stale()) return ["stale", `no data since ${seen}`];
    return seen ? ["live", `live · as of ${seen}`] : ["connecting", "connected · no data yet"];
  };

  const showLamp = () => {
    const [state, words] = describe();
    if (lamp.dataset.state !== state) lamp.dataset.state = state;
    if (lampWords.textContent !== words) lampWords.textContent = words;
  };
  fenceline.showLamp = showLamp;

  // --- Refetching ---------------------------------------------------------------------------------------------
  const held = () => pointerDown || performance.now() - pointerMoved < POINTER_REST;

  const ring = (section, gap = 0) => {
    const page = pages.get(section);
    page.dirty = true;
    const due = page.last + Math.max(gap, page.pace, Math.min(...page.took) * REST);
    if (page.flying || document.hidden || paused || (page.timer && page.due <= due)) return;
    clearTimeout(page.timer);
    if (due <= performance.now() && !held()) return fetchNow(section);
    page.due = due;
    page.timer = setTimeout(() => {
      page.timer = 0;
      if (page.dirty) ring(section, gap);
    }, Math.max(due - performance.now(), 20));
  };

  const fetchNow = (section) => {
    const page = pages.get(section);
    Object.assign(page, { dirty: false, flying: true, timer: 0, last: performance.now() });
    htmx.trigger(section, "bell");
  };

  // A frame is painted after its callbacks. A page is refetched only once it is drawn, even after a fast answer.
  const whenDrawn = (then) => requestAnimationFrame(() => setTimeout(then));

  const ringAll = () => sections().forEach((section) => ring(section));

  const onBell = (bell) => {
    if (paused) waiting += bell.kind === "collectors" ? 0 : (bell.ids || [0]).length;
    for (const section of sections()) {
      const about = section.dataset.cluster;
      if (about && about !== bell.cluster) continue;
      if (section.dataset.bell.split(" ").includes(bell.kind)) ring(section, bell.kind === "collectors" ? COLLECTORS_GAP : 0);
    }
    showLamp();
  };

  document.addEventListener("htmx:configRequest", (event) => {
    const page = pages.get(event.detail.elt);
    if (page && page.tag) event.detail.headers["If-None-Match"] = page.tag;
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (!pages.has(event.detail.elt)) return;
    const ours = xhr.getResponseHeader("Fenceline-Now") !== null;
    // A page about a deleted subject explains that itself.
    if (xhr.status === 404 && ours) Object.assign(event.detail, { shouldSwap: true, isError: false });
    if (paused || xhr.status === 304 || !ours) event.detail.shouldSwap = false; // A pause's end asks again.
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    // htmx reuses this detail: when the page is drawn, its `elt` is a swapped part.
    const { elt: section, xhr } = event.detail;
    const page = pages.get(section);
    if (!page) return;
    const now = xhr.getResponseHeader("Fenceline-Now");
    answered = now !== null;
    if (now !== null && !paused) {
      fenceline.setClock(Number(now));
      asOf = Number(xhr.getResponseHeader("Fenceline-As-Of")) || 0;
      page.tag = xhr.getResponseHeader("ETag") || page.tag;
    }
    showLamp();
    page.took = [page.took[1], performance.now() - page.last];
    whenDrawn(() => {
      page.flying = false;
      if (page.dirty) ring(section);
    });
  });

  // --- The socket ---------------------------------------------------------------------------------------------
  const connect = () => {
    socket = new WebSocket(location.origin.replace(/^http/, "ws") + lamp.dataset.socketPath);
    socket.onopen = () => {
      if (everUp) announce("The page is live again.");
      lamp.dataset.socket = "up";
      socketUp = everUp = true;
      backoff = 500;
      ringAll(); // Bells in between are lost.
      showLamp();
    };
    socket.onmessage = (message) => onBell(JSON.parse(message.data));
    socket.onclose = (event) => {
      if (event.code === 4401) return fenceline.reload();
      if (socketUp) announce(`The live socket is down; the page asks every ${DOWN_POLL / 1000} seconds.`);
      socketUp = false;
      setTimeout(connect, backoff * (0.75 + Math.random() / 2));
      backoff = Math.min(backoff * 2, LONGEST_BACKOFF);
      lamp.dataset.socket = "down";
      showLamp();
    };
  };

  // --- Pause, visibility, pointer, slow polls -----------------------------------------------------------------
  fenceline.pause = () => {
    paused = !paused;
    waiting = 0;
    pauseButton.setAttribute("aria-pressed", String(paused));
    pauseButton.textContent = paused ? "Resume" : "Pause";
    announce(paused ? "Paused." : "The page follows changes again.");
    if (!paused) ringAll();
    showLamp();
  };
  pauseButton.addEventListener("click", fenceline.pause);
  document.addEventListener("visibilitychange", () => document.hidden || ringAll());
  addEventListener("pageshow", (event) => event.persisted && ringAll());
  // No row moves under a moving pointer.
  document.addEventListener("pointermove", (event) => {
    if (event.target instanceof Element && event.target.closest("section[data-bell] tbody")) pointerMoved = performance.now();
  });
  document.addEventListener("pointerdown", () => (pointerDown = true));
  for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (pointerDown = false));

  for (const section of sections()) {
    pages.set(section, { pace: Number(section.dataset.pace), took: [0, 0], timer: 0, due: 0, flying: false, dirty: false, last: -1e9, tag: "" });
  }
  let lastPoll = performance.now();
  setInterval(() => {
    const due = socketUp && answered && !stale() ? SAFETY_POLL : DOWN_POLL;
    if (performance.now() - lastPoll >= due) {
      lastPoll = performance.now();
      ringAll();
    }
    showLamp();
  }, 500);
  showLamp();
  // htmx listens for notifications from then on; an earlier one would be awaited for ever.
  document.addEventListener("DOMContentLoaded", connect);
}
