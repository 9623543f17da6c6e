"use strict";

// Draws the tokens in the window over time.

const MAX_POINTS = 600;

/**
 * `points` are the model calls: number of the session, place in it, tokens, and those read from the cache. `titleOf` names
 * the boundary before a session; `open` shows the call at which the reader points.
 */
function drawChart(points, { label, titleOf, open }) {
  const width = 1000;
  const height = 160;
  const top = Math.max(...points.map((point) => point.tokens)) * 1.1;
  const each = Math.ceil(points.length / MAX_POINTS);
  const shown = points.filter((point, place) => place % each === 0 || points[place - 1].number !== point.number);
  const x = (place) => (shown.length > 1 ? (place / (shown.length - 1)) * width : width / 2);
  const y = (tokens) => height - (tokens / top) * (height - 16);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  chart.setAttribute("aria-label", label);
  let line = "";
  let cached = `M0 ${height}`;
  for (const [place, point] of shown.entries()) {
    const opens = place === 0 || shown[place - 1].number !== point.number;
    line += `${opens ? "M" : "L"}${x(place).toFixed(1)} ${y(point.tokens).toFixed(1)}`;
    cached += `L${x(place).toFixed(1)} ${y(point.cached).toFixed(1)}`;
    if (opens && place) {
      const between = (x(place) + x(place - 1)) / 2;
      const mark = svg("line", { class: "boundary", x1: between, x2: between, y1: 0, y2: height });
      mark.append(svg("title", {}, titleOf(point.number)));
      chart.append(mark);
    }
  }
  chart.append(
    svg("path", { class: "cached", d: `${cached}L${width} ${height}Z` }),
    svg("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }),
    svg("path", { class: "window", d: line }),
  );
  chart.addEventListener("click", (event) => {
    const box = chart.getBoundingClientRect();
    const place = Math.round(((event.clientX - box.left) / box.width) * (shown.length - 1));
    const point = shown[Math.min(Math.max(place, 0), shown.length - 1)];
    open(point);
  });
  return chart;
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, `${value}`);
  if (text) made.append(text);
  return made;
}
