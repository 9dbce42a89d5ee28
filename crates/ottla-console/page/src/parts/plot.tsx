/** A plot over time, drawn by uPlot, with a legend of its own: uPlot's would need another content security policy to be checked. */
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";

import { time, visible } from "../format";
import { isDark } from "../screen";

export interface Line {
  name: string;
  values: (number | null)[];
}

interface Props {
  title: string;
  /** Milliseconds since 1970. */
  times: number[];
  lines: Line[];
  text: (value: number | null | undefined) => string;
  height?: number;
}

/** The time axis is at least so long. */
const LEAST_S = 300;

/** Loaded when the first plot is shown. */
export const library = () => import("uplot").then((module) => module.default);

export function Plot({ title, times, lines, text, height = 130 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const names = lines.map((line) => line.name).join("\n");
  const dark = isDark.value;
  const data = useRef<uPlot.AlignedData>([[]]);
  data.current = [times.map((ms) => ms / 1000), ...lines.map((line) => line.values)];

  useEffect(() => {
    let isGone = false;
    let observer: ResizeObserver | null = null;
    void library().then((UPlot) => {
      const element = box.current;
      if (isGone || !element) return;
      const css = getComputedStyle(document.documentElement);
      const colour = (name: string) => css.getPropertyValue(name).trim();
      // Half a partition is no mark.
      const isWhole = () => data.current.slice(1).every((values) => (values as Line["values"]).every((value) => value === null || Number.isInteger(value)));
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      plot.current = new UPlot(
        {
          width: Math.max(120, element.clientWidth),
          height,
          legend: { show: false },
          cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
          // A few samples are not drawn as wide as hours of them. uPlot gives a single sample a whole day.
          scales: { x: { range: () => rangeOf(data.current[0]) }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) <= 0 ? 1 : high * 1.08] } },
          axes: [
            { ...axis, size: 24, space: 70, values: (_, marks) => marks.map((mark) => hour(mark, marks)) },
            { ...axis, size: 58, space: 28, gap: 4, values: (_, marks) => marks.map((mark) => (Number.isInteger(mark) || !isWhole() ? text(mark) : "")) },
          ],
          series: [
            {},
            ...lines.map((_, index) => ({
              stroke: colour(`--s${index % 8}`),
              width: 1.5,
              points: { show: times.length < 3 },
              ...(lines.length === 1 ? { fill: colour("--fill") } : {}),
            })),
          ],
          hooks: { setCursor: [(it) => setAt(it.cursor.idx ?? null)] },
        },
        data.current,
        element,
      );
      observer = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(120, element.clientWidth), height }));
      observer.observe(element);
    });
    return () => {
      isGone = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, dark, height]);
  useEffect(() => plot.current?.setData(data.current), [times, lines]);

  const index = at ?? times.length - 1;
  const newest = lines.map((line) => `${line.name} ${text(line.values.at(-1))}`).join(", ");
  return (
    <figure class="plot">
      <figcaption>
        <b>{title}</b>
        <span class="soft">{at === null ? "" : time(times[index]).slice(11, 19)}</span>
      </figcaption>
      <div class="canvas" ref={box} role="img" aria-label={`${title} over time; now: ${visible(newest)}`} />
      <ul class="legend">
        {lines.map((line, series) => (
          <li key={line.name}>
            <i class={`mark s${series % 8}`} />
            <span class="name">{visible(line.name)}</span> <b>{text(line.values[index])}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** The seconds that the time axis shows. */
function rangeOf(seconds: ArrayLike<number> = []): [number, number] {
  const last = seconds[seconds.length - 1] ?? 0;
  return [Math.min(seconds[0] ?? 0, last - LEAST_S), last];
}

/** `14:05`, with seconds where marks are less than a minute apart. */
function hour(mark: number, marks: number[]): string {
  const text = time(mark * 1000).slice(11, 19);
  return marks.length > 1 && marks[1]! - marks[0]! < 60 ? text : text.slice(0, 5);
}
