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
    doubleClick: false,
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "toImage"]],
  };
  const source = document.currentScript.dataset.plotly;
  const drawn = new Map(); // element -> what it shows
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

  /** Axes, type and labels in the page's colours, which differ between light and dark. */
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

  /** An instant in the form for an axis that knows only UTC. */
  const shifted = (ms) => ms + fenceline.shift(ms);

  /** Give a trace its tone's colour; `meta` names the tone and the fields with instants. */
  const dressed = (trace) => {
    const { tone, times } = trace.meta;
    const shown = { ...trace, marker: { ...trace.marker, color: colour(tone), line: { ...trace.marker.line, color: colour(tone) } } };
    if (trace.line) shown.line = { ...trace.line, color: colour(tone) };
    if (trace.text) shown.textfont = { ...trace.textfont, color: colour("ink") };
    for (const name of times) shown[name] = trace[name].map(shifted);
    return shown;
  };

  /** The instant at an end of an axis: Plotly converts the given milliseconds to `2026-11-22 15:12:15`. */
  const instant = (end) => {
    if (typeof end === "number") return end;
    const [day, time = "00:00"] = end.split(" ");
    return Date.parse(`${day}T${time}Z`);
  };
  const laidOut = (layout) => {
    const shown = { ...layout, template: template(), autosize: true };
    if (coarse) shown.dragmode = false; // A finger on a chart scrolls the page.
    if (layout.xaxis.type === "date") shown.xaxis = { ...layout.xaxis, range: layout.xaxis.range.map(shifted) };
    return shown;
  };

  /** A drag over a chart, or its zoom, sets the range of the page. */
  const setRange = (changed) => {
    const axis = Object.keys(changed).find((key) => key.endsWith(".range[0]") && key.startsWith("xaxis"));
    if (!axis) return;
    const [from, to] = [changed[axis], changed[axis.replace("[0]", "[1]")]];
    const [first, last] = [from, to].map((end) => instant(end) - fenceline.shift(instant(end)));
    fenceline.showRange(first, last);
  };
  const open = ({ points }) => {
    const [, url] = [points[0].customdata].flat();
    if (url) location.assign(fenceline.withRange(url));
  };

  const listen = (element, ofTime) => {
    if (listening.has(element)) return;
    listening.add(element);
    if (ofTime) element.on("plotly_relayout", setRange);
    element.on("plotly_click", open);
  };

  const draw = (element) => {
    const text = document.getElementById(element.dataset.chart).textContent;
    const key = `${text}${colour("ink")}${root.dataset.zone}`;
    if (drawn.get(element) === key) return;
    drawn.set(element, key);
    const { data, layout } = JSON.parse(text);
    Plotly.react(element, data.map(dressed), laidOut(layout), { ...CONFIG, displayModeBar: coarse ? false : "hover" });
    listen(element, layout.xaxis.type === "date");
  };

  /** Fetch Plotly on demand: it is larger than everything else, and often not needed. */
  const ask = () => {
    inView.disconnect();
    if (asked) return;
    asked = true;
    const script = document.createElement("script");
    script.src = source;
    script.addEventListener("load", drawAll);
    document.head.append(script);
  };

  /** Charts near the viewport, also in folds that the reader opens. */
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
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", drawAll);
  new MutationObserver(drawAll).observe(root, { attributes: true, attributeFilter: ["data-theme", "data-zone"] });
  drawAll();
}
