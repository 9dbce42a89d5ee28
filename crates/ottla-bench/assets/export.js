// Exports a plot: PNG from its canvas, SVG redrawn from its scales, so that it is sharp at any
// size.
"use strict";

const exporting = (() => {
  const escaped = (text) =>
    String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  // Saved through an object URL, because browsers reject data URLs larger than two megabytes.
  function save(name, blob) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  // The canvas on the page's background, with the title above and the legend below, which are not
  // part of the canvas.
  function png(plot, title, name) {
    const ratio = uPlot.pxRatio;
    const source = plot.ctx.canvas;
    const canvas = document.createElement("canvas");
    const legend = legendOf(plot);
    canvas.width = source.width;
    canvas.height = source.height + (34 + 18 * legend.length) * ratio;
    const context = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--card").trim();
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = style.getPropertyValue("--ink").trim();
    context.font = `600 ${14 * ratio}px sans-serif`;
    context.fillText(title, 10 * ratio, 20 * ratio);
    context.drawImage(source, 0, 28 * ratio);
    context.font = `${12 * ratio}px sans-serif`;
    legend.forEach((entry, index) => {
      const y = source.height + (42 + 18 * index) * ratio;
      context.fillStyle = entry.colour;
      context.fillRect(12 * ratio, y - 8 * ratio, 14 * ratio, 3 * ratio);
      context.fillStyle = style.getPropertyValue("--ink").trim();
      context.fillText(entry.label, 32 * ratio, y - 3 * ratio);
    });
    canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
  }

  function legendOf(plot) {
    return plot.series.slice(1).filter((series) => series.show).map((series) => ({
      label: series.label,
      colour: typeof series._stroke === "string" ? series._stroke : "#888",
      dash: series.dash,
    }));
  }

  function svgText(plot, title) {
    const box = plot.bbox;
    const ratio = uPlot.pxRatio;
    const [left, top, width, height] = [box.left, box.top, box.width, box.height].map((it) => it / ratio);
    const legend = legendOf(plot);
    const all = { width: plot.width, height: plot.height + 34 + 18 * legend.length };
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const parts = [];
    parts.push(`<rect width="100%" height="100%" fill="${colour("--card")}"/>`);
    parts.push(`<text x="10" y="20" font-weight="600" font-size="14" fill="${colour("--ink")}">${escaped(title)}</text>`);
    parts.push(`<g transform="translate(0 28)">`);
    plot.axes.forEach((axis) => {
      if (!axis.show || !axis._splits) return;
      const isX = axis.side % 2 === 0;
      axis._splits.forEach((split, index) => {
        const label = axis._values[index];
        const at = plot.valToPos(split, axis.scale);
        if (at === null || !Number.isFinite(at)) return;
        const [x1, y1, x2, y2] = isX ? [left + at, top, left + at, top + height] : [left, top + at, left + width, top + at];
        if (axis.grid && axis.grid.show)
          parts.push(`<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${colour("--grid")}"/>`);
        if (label === null || label === undefined || label === "") return;
        const anchor = isX ? "middle" : axis.side === 1 ? "start" : "end";
        const [x, y] = isX ? [left + at, top + height + 18] : [axis.side === 1 ? left + width + 6 : left - 6, top + at + 4];
        parts.push(`<text x="${x}" y="${y}" text-anchor="${anchor}" font-size="11" fill="${colour("--soft")}">${escaped(label)}</text>`);
      });
      if (axis.label && isX)
        parts.push(`<text x="${left + width / 2}" y="${plot.height - 4}" text-anchor="middle" font-size="12" fill="${colour("--soft")}">${escaped(axis.label)}</text>`);
      if (axis.label && !isX) {
        const x = axis.side === 1 ? plot.width - 6 : 12;
        parts.push(`<text transform="translate(${x} ${top + height / 2}) rotate(-90)" text-anchor="middle" font-size="12" fill="${colour("--soft")}">${escaped(axis.label)}</text>`);
      }
    });
    parts.push(`<clipPath id="c"><rect x="${left}" y="${top}" width="${width}" height="${height}"/></clipPath><g clip-path="url(#c)">`);
    (plot.marks || []).forEach((mark) => {
      const at = left + plot.valToPos(mark.second, "x");
      parts.push(`<line x1="${at}" y1="${top}" x2="${at}" y2="${top + height}" stroke="${colour(mark.colour)}" stroke-width="1" opacity=".6"/>`);
    });
    plot.series.slice(1).forEach((series, index) => {
      if (!series.show) return;
      const xs = plot.data[0], ys = plot.data[index + 1];
      const points = [];
      let path = "", pen = "M";
      ys.forEach((value, at) => {
        if (value === null || value === undefined) { if (value === null && !series.spanGaps) pen = "M"; return; }
        const x = left + plot.valToPos(xs[at], "x"), y = top + plot.valToPos(value, series.scale);
        if (!Number.isFinite(x) || !Number.isFinite(y)) return;
        path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
        pen = "L";
        points.push([x, y]);
      });
      const stroke = series._stroke;
      ((plot.spreads || [])[index] || []).forEach((spread, at) => {
        if (!spread) return;
        const x = left + plot.valToPos(xs[at], "x");
        const [low, high] = spread.map((value) => top + plot.valToPos(value, series.scale));
        if ([x, low, high].every(Number.isFinite))
          parts.push(`<line x1="${x.toFixed(1)}" y1="${low.toFixed(1)}" x2="${x.toFixed(1)}" y2="${high.toFixed(1)}" stroke="${stroke}" stroke-width="1.25"/>`);
      });
      const dash = series.dash ? ` stroke-dasharray="${series.dash.join(" ")}"` : "";
      if (series.width > 0) parts.push(`<path d="${path}" fill="none" stroke="${stroke}" stroke-width="${series.width}"${dash}/>`);
      if (series.drawsPoints) points.forEach(([x, y]) => parts.push(`<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="3" fill="${stroke}"/>`));
    });
    parts.push("</g></g>");
    legend.forEach((entry, index) => {
      const y = plot.height + 42 + 18 * index;
      parts.push(`<rect x="12" y="${y - 8}" width="14" height="3" fill="${entry.colour}"/>`);
      parts.push(`<text x="32" y="${y - 3}" font-size="12" fill="${colour("--ink")}">${escaped(entry.label)}</text>`);
    });
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${all.width}" height="${all.height}" viewBox="0 0 ${all.width} ${all.height}" font-family="sans-serif">${parts.join("")}</svg>`;
  }

  function svg(plot, title, name) {
    save(`${name}.svg`, new Blob([svgText(plot, title)], { type: "image/svg+xml" }));
  }

  return { png, svg, svgText };
})();
