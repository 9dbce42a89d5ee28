// Plots: uPlot with this page's colours, marks, spreads and exports.
//
// A plot is drawn when its element gets a width, and again whenever that width changes, because
// elements added beside it make it narrower. Code that adds a plot therefore need not draw it or
// know when the page is complete.
"use strict";

const plotting = (() => {
  // The plots on the page, by element.
  const live = new Map();
  const widths = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      const entry = live.get(target);
      if (!target.isConnected) forget(entry);
      else if (target.clientWidth !== entry.width) draw(entry);
    }
  });

  function forget(entry) {
    widths.unobserve(entry.place);
    live.delete(entry.place);
    if (entry.plot) entry.plot.destroy();
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function short(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return trim(value / 1e9) + "G";
    if (size >= 1e6) return trim(value / 1e6) + "M";
    if (size >= 1e4) return trim(value / 1e3) + "k";
    if (size >= 100) return value.toFixed(0);
    if (size >= 1 || size === 0) return trim(value);
    return String(Number(value.toPrecision(2)));
  }
  const trim = (value) => String(Number(value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2)));

  const isValue = (value) => value !== null && value !== undefined;

  // A series: { label, values, colour (index), dash, width, points, scale, spreads: [[low, high] …] }.
  // Options: { title, x: { values, label, log, ticks }, y: { label, log, unit }, y2, series, marks, height }.
  function add(parent, options) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const heading = document.createElement("h3");
    heading.textContent = options.title;
    const tools = document.createElement("span");
    tools.className = "tools";
    const place = document.createElement("div");
    caption.append(heading, tools);
    figure.append(caption, place);
    parent.append(figure);
    const entry = { figure, place, options, plot: null, width: 0 };
    const name = options.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    for (const kind of ["svg", "png"]) {
      const button = document.createElement("button");
      button.textContent = kind.toUpperCase();
      button.title = `Save this plot as ${kind.toUpperCase()}`;
      button.onclick = () => exporting[kind](entry.plot, options.title, name);
      tools.append(button);
    }
    if (options.marks && options.marks.length > 0) figure.append(legendOfMarks(options.marks));
    live.set(place, entry);
    widths.observe(place);
  }

  function legendOfMarks(marks) {
    const line = document.createElement("p");
    line.className = "marks";
    for (const [kind, label] of KINDS_OF_MARKS) {
      const count = marks.filter((mark) => mark.kind === kind).length;
      if (count === 0) continue;
      const key = document.createElement("i");
      key.style.background = `var(${kindColour(kind)})`;
      line.append(key, `${label}: ${count}`);
    }
    return line;
  }
  const KINDS_OF_MARKS = [["leader-death", "death of a leader"], ["rebalance", "members of groups that join or leave"], ["segment-roll", "segment rolls"], ["flush", "moments with disk flushes"], ["switches", "bursts of context switches"]];
  const kindColour = (kind) => ({ "leader-death": "--bad", rebalance: "--good", "segment-roll": "--mark-roll", flush: "--mark-flush", switches: "--mark-switches" })[kind];

  function draw(entry) {
    const { options, place, figure } = entry;
    if (entry.plot) entry.plot.destroy();
    entry.width = place.clientWidth;
    const width = Math.max(200, entry.width);
    const axis = (more) => ({
      stroke: colour("--soft"), font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
      grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1, size: 4 }, ...more,
    });
    const y = options.y;
    // Spreads can exceed the range of the medians, which is all that uPlot knows.
    const [lowest, highest] = reachOfSpreads(options.series);
    const axes = [
      axis({ label: options.x.label, labelSize: 18, size: 30, space: options.x.ticks ? 20 : 55,
        ...(options.x.ticks ? { splits: () => options.x.ticks.map((it) => it[0]), values: (plot) => roomForLabels(plot, options.x.ticks) }
          : { values: (_, splits) => splits.map((it) => (it === null ? null : short(it))) }) }),
      axis({ label: y.label, labelSize: 18, size: 52, scale: "y", values: (_, splits) => splits.map((it) => (it === null ? null : short(it))) }),
    ];
    const scales = {
      x: { time: false, distr: options.x.log ? 3 : 1, range: options.x.range },
      y: { distr: y.log ? 3 : 1, range: (_, low, high) => {
        if (low === null || high === null) return [null, null];
        const [least, most] = [Math.min(low, lowest), Math.max(high, highest)];
        return y.log ? uPlot.rangeLog(least, most, 10, false) : rangeFromZero(least, most);
      } },
    };
    if (options.y2) {
      axes.push(axis({ label: options.y2.label, labelSize: 18, size: 46, scale: "y2", side: 1, grid: { show: false }, values: (_, splits) => splits.map((it) => (it === null ? null : short(it))) }));
      scales.y2 = { range: (_, low, high) => options.y2.range || rangeFromZero(low, high) };
    }
    const series = options.series.map((it) => {
      const stroke = colour(`--s${it.colour % 8}`);
      // A single value is drawn as a point, because a line needs two.
      const drawsPoints = !!it.points || it.values.filter(isValue).length < 2;
      return {
        label: it.label, stroke, width: it.width ?? 1.75, dash: it.dash, scale: it.scale || "y",
        drawsPoints, spanGaps: it.spanGaps ?? true,
        points: { show: drawsPoints, size: 6, fill: stroke, stroke },
        value: (_, value) => short(value),
      };
    });
    const config = {
      width, height: options.height || 250, axes, scales, legend: { live: true },
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      series: [{ label: options.x.legend || options.x.label, value: (_, value) => (options.x.show ? options.x.show(value) : short(value)) }, ...series],
      hooks: {
        drawAxes: [(plot) => drawMarks(plot, options), (plot) => entry.witness?.begin(plot)],
        drawSeries: [(plot, index) => entry.witness?.look(plot, index)],
        draw: [(plot) => drawSpreads(plot, options)],
      },
    };
    entry.plot = new uPlot(config, [options.x.values, ...options.series.map((it) => it.values)], place);
    entry.plot.spreads = options.series.map((it) => it.spreads || []);
    entry.plot.marks = (options.marks || []).map((mark) => ({ second: mark.second, colour: kindColour(mark.kind) }));
  }

  // Omits labels that would overlap the previous one.
  function roomForLabels(plot, ticks) {
    let end = -Infinity;
    return ticks.map(([at, label]) => {
      const width = 6.5 * String(label).length, from = plot.valToPos(at, "x") - width / 2;
      if (from < end + 6) return null;
      end = from + width;
      return label;
    });
  }

  function rangeFromZero(low, high) {
    if (low === null || high === null) return [0, 1];
    const top = high <= 0 ? 1 : high * 1.06;
    return [Math.min(0, low), top];
  }

  // Series on the left axis only.
  function reachOfSpreads(series) {
    const ends = series.filter((it) => it.spreads && !it.scale).flatMap((it) => it.spreads).filter(isValue).flat().filter((value) => value > 0);
    return [Math.min(...ends), Math.max(...ends)];
  }

  function drawMarks(plot, options) {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const mark of options.marks || []) {
      const x = Math.round(plot.valToPos(mark.second, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(kindColour(mark.kind));
      const isOfTheScenario = mark.kind === "leader-death" || mark.kind === "rebalance";
      ctx.globalAlpha = isOfTheScenario ? 1 : mark.kind === "segment-roll" ? 0.7 : 0.25;
      ctx.lineWidth = (isOfTheScenario ? 2 : 1) * uPlot.pxRatio;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // A line from the minimum to the maximum of the rounds.
  function drawSpreads(plot, options) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    options.series.forEach((series) => {
      if (!series.spreads) return;
      ctx.strokeStyle = colour(`--s${series.colour % 8}`);
      ctx.lineWidth = 1.25 * uPlot.pxRatio;
      series.spreads.forEach((spread, index) => {
        if (!spread) return;
        const x = plot.valToPos(options.x.values[index], "x", true);
        const [low, high] = spread.map((value) => plot.valToPos(value, series.scale || "y", true));
        ctx.beginPath();
        ctx.moveTo(x, low);
        ctx.lineTo(x, high);
        ctx.stroke();
      });
    });
    ctx.restore();
  }

  function redrawAll() {
    live.forEach(draw);
  }

  // ---- for tests ----

  // Records which series of a plot change its canvas while it is drawn. Searching for their colours
  // afterwards would miss what a later series covers, and thin lines with only half-transparent
  // pixels.
  class Witness {
    drawn = new Set();
    begin(plot) { this.before = pixels(plot); }
    look(plot, index) {
      const now = pixels(plot);
      let changed = 0;
      for (let at = 0; at < now.length; at += 1) changed += now[at] !== this.before[at];
      if (changed >= 4) this.drawn.add(index);
      this.before = now;
    }
  }
  const pixels = ({ ctx, bbox }) => new Uint32Array(ctx.getImageData(bbox.left, bbox.top, bbox.width, bbox.height).data.buffer);

  // Draws every plot again and writes into the page how many series have values, how many of them
  // were drawn, how many plots are complete as SVG, and how many lie within their frames without
  // overlapping others.
  async function check() {
    const entries = [...live.values()].filter((entry) => entry.plot);
    for (const entry of entries) {
      entry.witness = new Witness();
      entry.plot.redraw(false);
    }
    // uPlot draws in a microtask, after the caller has finished.
    await new Promise((resolve) => setTimeout(resolve, 0));
    const all = { plots: live.size, series: 0, drawn: 0, svg: 0, apart: 0 };
    for (const { plot, options, figure, witness } of entries) {
      const expected = options.series.map((series, index) => (series.values.some(isValue) ? index + 1 : 0)).filter((index) => index > 0);
      const missing = expected.filter((index) => !witness.drawn.has(index));
      figure.dataset.missing = missing.map((index) => options.series[index - 1].label).join("; ");
      all.series += expected.length;
      all.drawn += expected.length - missing.length;
      const text = exporting.svgText(plot, options.title);
      all.svg += (text.match(/<path d="M|<circle /g) || []).length > 0 && !/NaN|undefined/.test(text) ? 1 : 0;
      all.apart += isWithin(plot.root, figure) && entries.every((other) => other.figure === figure || !overlap(figure, other.figure)) ? 1 : 0;
    }
    document.body.dataset.checked = Object.entries(all).map(([name, count]) => `${name}=${count}`).join(" ");
  }

  function isWithin(element, frame) {
    const [inner, outer] = [element, frame].map((it) => it.getBoundingClientRect());
    return inner.left >= outer.left && inner.right <= outer.right && outer.left >= 0 && outer.right <= document.documentElement.clientWidth;
  }

  function overlap(a, b) {
    const [one, other] = [a, b].map((it) => it.getBoundingClientRect());
    return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
  }

  return { add, redrawAll, check, short };
})();
