// Plots: uPlot with this page's colours, marks, spreads and exports. Every plot can be drawn again when the theme or the
// width changes.
"use strict";

const plotting = (() => {
  const live = [];
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
    const entry = { figure, place, options, plot: null };
    const name = options.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    for (const kind of ["svg", "png"]) {
      const button = document.createElement("button");
      button.textContent = kind.toUpperCase();
      button.title = `Save this plot as ${kind.toUpperCase()}`;
      button.onclick = () => exporting[kind](entry.plot, options.title, name);
      tools.append(button);
    }
    if (options.marks && options.marks.length > 0) figure.append(legendOfMarks(options.marks));
    live.push(entry);
    draw(entry);
    return entry;
  }

  function legendOfMarks(marks) {
    const line = document.createElement("p");
    line.className = "marks";
    for (const [kind, label] of [["segment-roll", "segment rolls"], ["flush", "disk flushes"]]) {
      const count = marks.filter((mark) => mark.kind === kind).length;
      if (count === 0) continue;
      const key = document.createElement("i");
      key.style.background = `var(${kindColour(kind)})`;
      line.append(key, `${count} ${label}`);
    }
    return line;
  }
  const kindColour = (kind) => (kind === "flush" ? "--mark-flush" : "--mark-roll");

  function draw(entry) {
    const { options, place, figure } = entry;
    if (entry.plot) entry.plot.destroy();
    const width = Math.max(240, figure.clientWidth - 20);
    const axis = (more) => ({
      stroke: colour("--soft"), font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
      grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1, size: 4 }, ...more,
    });
    const y = options.y;
    const axes = [
      axis({ label: options.x.label, labelSize: 18, size: 30, space: options.x.ticks ? 20 : 55,
        ...(options.x.ticks ? { splits: () => options.x.ticks.map((it) => it[0]), values: () => options.x.ticks.map((it) => it[1]) }
          : { values: (_, splits) => splits.map((it) => (it === null ? null : short(it))) }) }),
      axis({ label: y.label, labelSize: 18, size: 52, scale: "y", values: (_, splits) => splits.map((it) => (it === null ? null : short(it))) }),
    ];
    const scales = {
      x: { time: false, distr: options.x.log ? 3 : 1, range: options.x.range },
      y: { distr: y.log ? 3 : 1, range: y.log ? undefined : (_, low, high) => rangeFromZero(low, high) },
    };
    if (options.y2) {
      axes.push(axis({ label: options.y2.label, labelSize: 18, size: 46, scale: "y2", side: 1, grid: { show: false }, values: (_, splits) => splits.map((it) => (it === null ? null : short(it))) }));
      scales.y2 = { range: (_, low, high) => options.y2.range || rangeFromZero(low, high) };
    }
    const series = options.series.map((it) => {
      const stroke = colour(`--s${it.colour % 8}`);
      return {
        label: it.label, stroke, width: it.width ?? 1.75, dash: it.dash, scale: it.scale || "y",
        drawsPoints: !!it.points, spanGaps: it.spanGaps ?? true,
        points: { show: !!it.points, size: 6, fill: stroke, stroke },
        value: (_, value) => short(value),
      };
    });
    const config = {
      width, height: options.height || 250, axes, scales, legend: { live: true },
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      series: [{ label: options.x.legend || options.x.label, value: (_, value) => (options.x.show ? options.x.show(value) : short(value)) }, ...series],
      hooks: { drawAxes: [(plot) => drawMarks(plot, options)], draw: [(plot) => drawSpreads(plot, options)] },
    };
    entry.plot = new uPlot(config, [options.x.values, ...options.series.map((it) => it.values)], place);
    entry.plot.marks = (options.marks || []).map((mark) => ({ second: mark.second, colour: kindColour(mark.kind) }));
    figure.dataset.series = String(options.series.filter((it) => it.values.some((value) => value !== null && value !== undefined)).length);
  }

  function rangeFromZero(low, high) {
    if (low === null || high === null) return [0, 1];
    const top = high <= 0 ? 1 : high * 1.06;
    return [Math.min(0, low), top];
  }

  function drawMarks(plot, options) {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const mark of options.marks || []) {
      const x = Math.round(plot.valToPos(mark.second, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(kindColour(mark.kind));
      ctx.globalAlpha = mark.kind === "flush" ? 0.25 : 0.7;
      ctx.lineWidth = uPlot.pxRatio;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // A line from the lowest to the highest round.
  function drawSpreads(plot, options) {
    const { ctx } = plot;
    ctx.save();
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
    for (let index = live.length - 1; index >= 0; index--) {
      if (!live[index].figure.isConnected) {
        live[index].plot.destroy();
        live.splice(index, 1);
      } else draw(live[index]);
    }
  }

  // For tests: of each plot, how many of its series have left their colour on the canvas.
  function check() {
    const all = { plots: 0, series: 0, drawn: 0, svg: 0 };
    for (const { figure, plot, options } of live) {
      if (!figure.isConnected) continue;
      const { left, top, width, height } = plot.bbox;
      const pixels = plot.ctx.getImageData(left, top, width, height).data;
      const present = new Set();
      for (let at = 0; at < pixels.length; at += 4)
        if (pixels[at + 3] > 200) present.add((pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2]);
      const near = (hex) => {
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
        for (const found of present)
          if (Math.abs((found >> 16) - r) + Math.abs(((found >> 8) & 255) - g) + Math.abs((found & 255) - b) <= 24) return true;
        return false;
      };
      const drawn = options.series.filter((it) => it.values.some((value) => value !== null && value !== undefined) && near(colour(`--s${it.colour % 8}`))).length;
      figure.dataset.drawn = String(drawn);
      all.plots += 1;
      all.series += Number(figure.dataset.series);
      all.drawn += drawn;
      const text = exporting.svgText(plot, options.title);
      all.svg += (text.match(/<path d="M|<circle /g) || []).length > 0 && !/NaN|undefined/.test(text) ? 1 : 0;
    }
    document.body.dataset.checked = `plots=${all.plots} series=${all.series} drawn=${all.drawn} svg=${all.svg}`;
  }

  return { add, redrawAll, check, short };
})();
