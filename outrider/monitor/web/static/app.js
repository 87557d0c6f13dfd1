// Draws the tables marked data-plot with uPlot, and rests while the page is hidden.
"use strict";

const plots = new Map();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function readTable(table) {
  const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent.trim());
  const columns = [[], ...names.map(() => [])];
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, i) => columns[i].push(cell.dataset.value === "" ? null : Number(cell.dataset.value)));
  }
  return { names, columns };
}

function shade(index, alpha) {
  const base = colour(`--series-${index % 8}`);
  return alpha === undefined ? base : base + alpha;
}

function draw(holder) {
  const table = document.getElementById(holder.dataset.table);
  if (!table || !table.tBodies[0].rows.length) return;
  const { names, columns } = readTable(table);
  const wanted = names.map((_, i) => i).filter((i) => (holder.dataset.plot === "records") === (i === 0));
  const data = [columns[0], ...wanted.map((i) => columns[i + 1])];
  const key = wanted.map((i) => names[i]).join("\n") + colour("--ink") + holder.clientWidth;
  const known = plots.get(holder);
  if (known && known.key === key && holder.contains(known.plot.root)) {
    known.plot.setData(data);
    return;
  }
  if (known) known.plot.destroy();
  holder.replaceChildren();
  const bars = holder.dataset.plot === "records";
  const long = columns[0][columns[0].length - 1] - columns[0][0] > 86400;
  const time = (seconds) => new Date(seconds * 1000).toISOString().slice(...(long ? [5, 16] : [11, 19])).replace("T", " ");
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const plot = new uPlot({
    width: holder.clientWidth - 16,
    height: 210,
    padding: [12, 8, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true, markers: { width: 0, fill: (u, i) => shade(bars ? 0 : i) } },
    scales: { x: { range: (u, low, high) => atLeast(10, u.data[0], low, high) }, y: { range: (u, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [{ ...axis, size: 28, space: 80, values: (u, splits) => splits.map(time) }, { ...axis, size: 44 }],
    series: [
      { label: "UTC", value: (u, at) => (at === null ? "" : time(at)) },
      ...wanted.map((i) => ({
        label: names[i],
        stroke: shade(i),
        width: bars ? 0 : 1.75,
        fill: bars ? shade(i, "66") : undefined,
        paths: bars ? uPlot.paths.bars({ size: [0.8, 40] }) : uPlot.paths.linear(),
        points: { show: !bars && columns[0].length <= 20, size: 5 },
      })),
    ],
  }, data, holder);
  plots.set(holder, { key, plot });
}

// Some seconds around data of one moment: in less, every label would say the same.
function atLeast(seconds, times, low, high) {
  const first = times[0], last = times[times.length - 1];
  const room = (seconds - (last - first)) / 2;
  return room > 0 ? [first - room, last + room] : [low, high];
}

function drawAll() {
  document.querySelectorAll("[data-plot]").forEach(draw);
}

document.addEventListener("DOMContentLoaded", drawAll);
document.addEventListener("htmx:after:swap", drawAll);
window.addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
document.addEventListener("htmx:config:request", (event) => {
  if (document.hidden) event.preventDefault();
});
// What is shown stays where an answer is none; without a session the page of the login comes in its place.
document.addEventListener("htmx:before:response", (event) => {
  const status = event.detail.ctx.response.status;
  if (status >= 400) event.preventDefault();
  if (status === 401) location.reload();
});
document.addEventListener("change", (event) => {
  if (event.target.closest("form.filters")) event.target.form.requestSubmit();
});
