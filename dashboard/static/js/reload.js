// Loading a page again, but not while it is being left.
"use strict";
window.fenceline = window.fenceline || {};
{
  // Milliseconds until a page that began to leave is gone, at most; a download leaves nothing.
  const LEAVES_WITHIN = 30000;
  let leaving = false;
  addEventListener("beforeunload", () => {
    leaving = true;
    setTimeout(() => (leaving = false), LEAVES_WITHIN);
  });

  /** Load the page again; one that is being left, as by its own sign-out, only if it stays. */
  fenceline.reload = () => setTimeout(() => location.reload(), leaving ? LEAVES_WITHIN : 0);
  // A refetch that finds its session ended: htmx would load the page at once, over the sign-out under way.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.detail.xhr.getResponseHeader("HX-Refresh") !== "true") return;
    event.preventDefault();
    fenceline.reload();
  });
}
