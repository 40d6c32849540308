// Notes bells, requests, and each change of a probe's row with the browser's clock (benchmarks/latency.py).
"use strict";
{
  const trace = window.trace = {bells: [], requests: [], rows: []};
  window.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({data}) => {
        const bell = JSON.parse(data);
        if (bell.kind === "transactions") trace.bells.push([Date.now(), bell.rev]);
      });
    }
  };
  const began = performance.timeOrigin;
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
    if (entry.initiatorType !== "xmlhttprequest") return;
    trace.requests.push([began + entry.startTime, began + entry.responseEnd]);
  })).observe({type: "resource"});
  const newest = {};
  const painted = new MessageChannel();
  let unpainted = [];
  painted.port1.onmessage = () => {
    for (const row of unpainted) row.painted = Date.now();
    unpainted = [];
  };
  const note = () => document.querySelectorAll("tbody tr").forEach((row) => {
    const id = row.querySelector("[data-row]")?.textContent.trim();
    if (!id?.startsWith("probe-") || newest[id] === row.dataset.rev) return;
    newest[id] = row.dataset.rev;
    const state = row.querySelector(".col-state").textContent.trim();
    const updated = Date.parse(row.querySelector(".col-updated time").dateTime);
    const change = {at: Date.now(), name: id, state, updated, rev: Number(row.dataset.rev), painted: 0};
    trace.rows.push(change);
    if (!unpainted.length) requestAnimationFrame(() => painted.port2.postMessage(0));
    unpainted.push(change);
  });
  const all = {subtree: true, childList: true, attributes: true, characterData: true};
  const watch = () => new MutationObserver(note).observe(document.querySelector("main"), all);
  addEventListener("DOMContentLoaded", watch);
}
