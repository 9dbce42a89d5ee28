/** Latency distributions: the latency at each quantile, with as much room for the last percent as for all before it. */
import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";

import { visible } from "../format";
import { isDark } from "../screen";
import { library } from "./plot";

export interface Distribution {
  name: string;
  /** Pairs of a quantile from 0 to 1 and its latency in microseconds. */
  points: [number, number][];
}

const HEIGHT = 220;
/** 0 at the minimum, 1 at 90 %, 2 at 99 % and so on. */
const place = (quantile: number): number => -Math.log10(1 - quantile);
const quantileAt = (place: number): string => (place === 0 ? "0 %" : `${(100 * (1 - 10 ** -place)).toFixed(Math.max(0, place - 2))} %`);

export function latencyText(us: number | null | undefined): string {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${us.toFixed(0)} µs`;
  const ms = us / 1000;
  return ms < 1000 ? `${ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

export function Quantiles({ title, lines }: { title: string; lines: Distribution[] }) {
  const box = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  useEffect(() => {
    let isGone = false;
    let plot: uPlot | null = null;
    let observer: ResizeObserver | null = null;
    void library().then((UPlot) => {
      const element = box.current;
      if (isGone || !element) return;
      const css = getComputedStyle(document.documentElement);
      const colour = (name: string) => css.getPropertyValue(name).trim();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      plot = new UPlot(
        {
          width: Math.max(120, element.clientWidth),
          height: HEIGHT,
          legend: { show: false },
          cursor: { show: false },
          scales: { x: { time: false }, y: { range: (_, __, high) => [0, (high ?? 0) <= 0 ? 1 : high * 1.08] } },
          axes: [
            { ...axis, size: 24, incrs: [1], values: (_, marks) => marks.map(quantileAt) },
            { ...axis, size: 62, space: 28, gap: 4, values: (_, marks) => marks.map(latencyText) },
          ],
          series: [{}, ...lines.map((_, index) => ({ stroke: colour(`--s${index % 8}`), width: 1.5, spanGaps: true, points: { show: false } }))],
        },
        joined(lines),
        element,
      );
      observer = new ResizeObserver(() => plot?.setSize({ width: Math.max(120, element.clientWidth), height: HEIGHT }));
      observer.observe(element);
    });
    return () => {
      isGone = true;
      observer?.disconnect();
      plot?.destroy();
    };
  }, [lines, dark]);
  return (
    <figure class="plot">
      <figcaption>
        <b>{title}</b>
      </figcaption>
      <div class="canvas quantiles" ref={box} role="img" aria-label={`${title}: ${lines.map((line) => `${visible(line.name)}, p99 ${latencyText(at(line, 0.99))}`).join("; ")}`} />
      <ul class="legend">
        {lines.map((line, index) => (
          <li key={line.name}>
            <i class={`mark s${index % 8}`} />
            <span class="name">{visible(line.name)}</span>{" "}
            <b>
              p50 {latencyText(at(line, 0.5))}, p99 {latencyText(at(line, 0.99))}
            </b>
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** The latency at the first known quantile that is not below this one. */
function at(line: Distribution, quantile: number): number | undefined {
  return (line.points.find(([known]) => known >= quantile) ?? line.points.at(-1))?.[1];
}

/** All lines over the quantiles of all of them. The maximum has no place: it would be infinitely far away. */
function joined(lines: Distribution[]): uPlot.AlignedData {
  const known = lines.map((line) => new Map(line.points.filter(([quantile]) => quantile < 1).map(([quantile, us]) => [place(quantile), us])));
  const places = [...new Set(known.flatMap((line) => [...line.keys()]))].sort((one, other) => one - other);
  return [places, ...known.map((line) => places.map((it) => line.get(it) ?? null))];
}
