// Loading a page again, but not while it is being left.
"use strict";
window.fenceline = window.fenceline || {};
{
  // Maximum milliseconds until a page that is being left is gone; a download leaves no page.
  const LEAVES_WITHIN = 30000;
  let leaving = false;
  addEventListener("beforeunload", () => {
    leaving = true;
    setTimeout(() => (leaving = false), LEAVES_WITHIN);
  });

  /** Load the page again; a page that is being left, for example by a sign-out, only if it stays. */
  fenceline.reload = () => setTimeout(() => location.reload(), leaving ? LEAVES_WITHIN : 0);
  // A refetch with an ended session: htmx would load the page at once, during a running sign-out.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.detail.xhr.getResponseHeader("HX-Refresh") !== "true") return;
    event.preventDefault();
    fenceline.reload();
  });
}
