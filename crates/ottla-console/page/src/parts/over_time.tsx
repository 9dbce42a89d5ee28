/** Plots of a cluster, topic or group over the last hours. Every plot has its place from the start, also without data. */
import { query, setQuery } from "../address";
import { api } from "../api";
import { bytes, count, duration, rate, short } from "../format";
import { useGet } from "../load";
import type { Series } from "../wire";
import { Choice } from "./fields";
import { type Line, Plot } from "./plot";

const EVERY_MS = 5000;
/** As many as there are colours. */
const MOST_LINES = 8;

const RANGES = [
  ["15m", "15 minutes"],
  ["1h", "1 hour"],
  ["4h", "4 hours"],
] as const;
type RangeName = (typeof RANGES)[number][0];
const DEFAULT: RangeName = "1h";
/** A longer range has a coarser resolution, so that a plot has some hundred samples at most. */
const RANGE_MS: Record<RangeName, { last_ms: number; step_ms: number }> = {
  "15m": { last_ms: 900_000, step_ms: 0 },
  "1h": { last_ms: 3_600_000, step_ms: 0 },
  "4h": { last_ms: 14_400_000, step_ms: 60_000 },
};

type Text = (value: number | null | undefined) => string;

const percent: Text = (value) => (value === null || value === undefined ? "–" : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`);
const latency: Text = (value) => (value === null || value === undefined ? "–" : value < 10 ? `${value.toFixed(value < 1 ? 2 : 1)} ms` : duration(value));

interface Wanted {
  title: string;
  text: Text;
  /** The name of a line by the name of its series; null for series of other plots. */
  line: (series: string) => string | null;
  /** Why it has no lines, if there are samples. */
  without: (data: Series) => string;
}

/** A plot of single series. */
function single(title: string, text: Text, names: Record<string, string>, without = "The cluster does not report these numbers, or you may not see them."): Wanted {
  return { title, text, line: (series) => names[series] ?? null, without: () => without };
}

/** A plot of all series with a prefix. */
function each(title: string, text: Text, prefix: string, name: (rest: string) => string, without: (data: Series) => string): Wanted {
  return { title, text, line: (series) => (series.startsWith(prefix) ? name(series.slice(prefix.length)) : null), without };
}

const RECORDS = single("Records", rate, { records_in: "in", records_out: "out" }, "A rate needs two samples.");
const DATA = single("Data", bytes, { bytes: "all replicas" });
const LAG = single("Lag", short, { lag: "all partitions" }, "The group has committed no offsets.");

const OF_CLUSTER: readonly Wanted[] = [
  RECORDS,
  each(
    "Latency",
    latency,
    "latency/",
    (name) => name,
    (data) =>
      data.has_latencies
        ? "No record was written or read in the last minutes."
        : "Kafka's protocol has no latencies. The page that ottla server itself serves shows the latencies of its broker to users that may see its log directories.",
  ),
  DATA,
  each(
    "Used disk",
    percent,
    "disk/",
    (id) => `broker ${id}`,
    () => "The brokers do not report the sizes of their volumes (Kafka does from 3.3 on), or you may not see them.",
  ),
  single("Lag of all groups", short, { lag: "all groups" }),
  single("Under-replicated partitions", count, { under_replicated: "partitions" }),
];
const OF_TOPIC: readonly Wanted[] = [RECORDS, DATA];
const OF_GROUP: readonly Wanted[] = [
  LAG,
  each("Lag by topic", short, "lag/", (topic) => topic, () => "The group has committed no offsets."),
  each("Lag by partition", short, "partition_lag/", (partition) => partition, () => "The group has committed no offsets."),
];

export function OverTime({ of }: { of: string }) {
  const named = query.value.get("range");
  const range = RANGES.find(([name]) => name === named)?.[0] ?? DEFAULT;
  const { data } = useGet<Series>(api(["series"], { of, ...RANGE_MS[range] }), EVERY_MS);
  const wanted = of === "cluster" ? OF_CLUSTER : of.startsWith("topic/") ? OF_TOPIC : OF_GROUP;
  return (
    <section aria-label="Over time">
      <div class="bar over">
        <h2>Over time</h2>
        <Choice label="Range" value={range} options={RANGES} onChange={(name) => setQuery({ range: name === DEFAULT ? null : name })} />
        {data?.is_full ? <span class="soft">The memory for samples is in use: some lines are missing.</span> : null}
      </div>
      <div class="plots">
        {wanted.map((plot) => (
          <WantedPlot key={plot.title} plot={plot} data={data} />
        ))}
      </div>
    </section>
  );
}

function WantedPlot({ plot, data }: { plot: Wanted; data: Series | undefined }) {
  const lines = data ? linesOf(plot, data) : [];
  if (data && lines.length > 0) return <Plot title={plot.title} times={data.times} lines={lines} text={plot.text} />;
  return (
    <figure class="plot">
      <figcaption>
        <b>{plot.title}</b>
      </figcaption>
      <p class="without soft">{!data ? "" : data.times.length === 0 ? "Plots begin with the first sample, in some seconds." : plot.without(data)}</p>
    </figure>
  );
}

/** The lines of a plot; if there are too many, the ones with the largest newest value. */
function linesOf(plot: Wanted, data: Series): Line[] {
  const lines: Line[] = [];
  for (const { name, values } of data.series) {
    const line = plot.line(name);
    if (line !== null && values.some((value) => value !== null)) lines.push({ name: line, values });
  }
  if (lines.length <= MOST_LINES) return lines;
  const newest = (line: Line) => line.values.at(-1) ?? -1;
  return lines.sort((one, other) => newest(other) - newest(one)).slice(0, MOST_LINES);
}
