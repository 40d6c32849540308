// Charts: Plotly draws the figures that a page carries as data, in the colours of our own style sheet.
"use strict";
window.fenceline = window.fenceline || {};
{
  const root = document.documentElement;
  const coarse = matchMedia("(pointer: coarse)").matches;
  const CONFIG = {
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    responsive: true,
    scrollZoom: false,
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };
  const source = document.currentScript.dataset.plotly;
  const drawn = new Map(); // element -> what it shows
  const windows = new WeakMap(); // element -> the first and the last range that the page gave it, and their zone
  const listening = new WeakSet();
  let asked = false;

  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);

  /** The present value of a colour variable; `light-dark()` is resolved by the browser. */
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };

  /** Axes, type and labels in the page's colours: what light and dark differ in. */
  const template = () => {
    const [ink, muted, line, surface, strong] = ["ink", "muted", "line", "surface", "line-strong"].map(colour);
    const clear = "rgba(0,0,0,0)";
    const axis = { gridcolor: line, linecolor: line, tickcolor: line, zerolinecolor: line };
    return {
      layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: muted },
        paper_bgcolor: clear,
        plot_bgcolor: clear,
        hoverlabel: { bgcolor: surface, bordercolor: strong, font: { color: ink } },
        modebar: { bgcolor: clear, color: muted, activecolor: ink },
        xaxis: axis,
        yaxis: axis,
      },
    };
  };

  /** Milliseconds to add to an instant, so that an axis which knows only UTC tells local time. */
  const shift = (ms) => (root.dataset.zone === "local" ? -new Date(ms).getTimezoneOffset() * 60000 : 0);
  const told = (ms) => ms + shift(ms);

  /** Give a trace its tone's colour; `meta` says which, and where it holds instants. */
  const dressed = (trace) => {
    const { tone, times } = trace.meta;
    const shown = { ...trace, marker: { ...trace.marker, color: colour(tone), line: { ...trace.marker.line, color: colour(tone) } } };
    if (trace.line) shown.line = { ...trace.line, color: colour(tone) };
    for (const name of times) shown[name] = trace[name].map(told);
    return shown;
  };

  /** The instant that an end of an axis is at: Plotly makes `2026-11-22 15:12:15` of the milliseconds it was given. */
  const instant = (end) => {
    if (typeof end === "number") return end;
    const [day, time = "00:00"] = end.split(" ");
    return Date.parse(`${day}T${time}Z`);
  };
  const same = (range, other) => range.every((end, at) => instant(end) === instant(other[at]));

  /** The range to show: what a reader has zoomed to, else the page's. Plotly holds a zoom only while the window
   * stays, and a live one moves on. Its reset goes back to the first window, and then the chart follows again. */
  const range = (element, given) => {
    const { zone } = root.dataset;
    let known = windows.get(element);
    if (known && known.zone !== zone) {
      listening.delete(element);
      Plotly.purge(element); // Else its reset would go to another zone's window.
      known = null;
    }
    windows.set(element, { first: known ? known.first : given, last: given, zone });
    const shown = known && element.layout.xaxis.range;
    const zoomed = shown && !same(shown, known.first) && !same(shown, known.last);
    return zoomed ? shown : [...given]; // Plotly writes a zoom into the array that it gets.
  };

  const laidOut = (element, layout) => {
    const shown = { ...layout, template: template(), autosize: true };
    if (coarse) shown.dragmode = false; // A finger on a chart scrolls the page.
    if (layout.xaxis.type === "date") shown.xaxis = { ...layout.xaxis, range: range(element, layout.xaxis.range.map(told)) };
    return shown;
  };

  /** Show only the time that was dragged over, in the chart and in the list below it. */
  const setRange = ({ "xaxis.range[0]": from, "xaxis.range[1]": to }) => {
    if (from === undefined) return;
    const query = new URLSearchParams(location.search);
    for (const name of ["last", "before"]) query.delete(name);
    const iso = (end) => new Date(instant(end) - shift(instant(end))).toISOString();
    query.set("from", iso(from));
    query.set("to", iso(to));
    location.search = query;
  };
  const open = ({ points }) => points[0].customdata?.[1] && location.assign(points[0].customdata[1]);

  const listen = (element) => {
    if (listening.has(element) || !element.closest("[data-sets-range]")) return;
    listening.add(element);
    element.on("plotly_relayout", setRange);
    element.on("plotly_click", open);
  };

  const draw = (element) => {
    const text = document.getElementById(element.dataset.chart).textContent;
    const key = `${text}${colour("ink")}${root.dataset.zone}`;
    if (drawn.get(element) === key) return;
    drawn.set(element, key);
    const { data, layout } = JSON.parse(text);
    Plotly.react(element, data.map(dressed), laidOut(element, layout), { ...CONFIG, displayModeBar: coarse ? false : "hover" });
    listen(element);
  };

  /** Fetch Plotly: it weighs more than all the rest, and nobody may need it. */
  const ask = () => {
    inView.disconnect();
    if (asked) return;
    asked = true;
    const script = document.createElement("script");
    script.src = source;
    script.addEventListener("load", drawAll);
    document.head.append(script);
  };

  /** Charts that nearly are in view, also those in folds that a reader opens. */
  const inView = new IntersectionObserver((charts) => charts.some((chart) => chart.isIntersecting) && ask(), { rootMargin: "200px" });

  const drawAll = () => {
    const charts = document.querySelectorAll("[data-chart]");
    if (!window.Plotly) return asked || charts.forEach((chart) => inView.observe(chart));
    for (const element of drawn.keys()) {
      if (element.isConnected) continue;
      Plotly.purge(element);
      drawn.delete(element);
    }
    charts.forEach(draw);
  };

  document.addEventListener("fenceline:swapped", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  new MutationObserver(drawAll).observe(root, { attributes: true, attributeFilter: ["data-theme", "data-zone"] });
  drawAll();
}
