/** One result of `ottla bench`: its figures and latencies; and the output of `ottla bench compare` for it and another. */
import { useMemo } from "preact/hooks";

import { query, setQuery, to } from "../../address";
import { api } from "../../api";
import { count, duration, short, utc, visibleLines } from "../../format";
import { useGet } from "../../load";
import { SelectField } from "../../parts/fields";
import { Head } from "../../parts/head";
import { type Distribution, Quantiles } from "../../parts/quantiles";
import { Badge, Empty, Facts, Failure, Loading } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { BenchResult, BenchResultRow, BenchScenario, BenchTargetRuns } from "../../wire";

/** Distributions in one plot: as many as there are colours. */
const MOST_LINES = 8;

const ms = (value: number): string => (value < 10 ? `${value.toFixed(2)} ms` : duration(value));

/** The figures that are shown here, in this order; the report has all of them. */
const FIGURES: readonly { name: string; title: string; text: (value: number) => string }[] = [
  { name: "produce.records_per_second", title: "Produced", text: (value) => `${short(value)}/s` },
  { name: "produce.mb_per_second", title: "Produced MB/s", text: (value) => value.toFixed(1) },
  { name: "consume.records_per_second", title: "Consumed", text: (value) => `${short(value)}/s` },
  { name: "consume.mb_per_second", title: "Consumed MB/s", text: (value) => value.toFixed(1) },
  { name: "search.records_per_second", title: "Sustained", text: (value) => `${short(value)}/s` },
  { name: "ack.p50_ms", title: "Ack p50", text: ms },
  { name: "ack.p99_ms", title: "Ack p99", text: ms },
  { name: "e2e.p50_ms", title: "End to end p50", text: ms },
  { name: "e2e.p99_ms", title: "End to end p99", text: ms },
];

export function BenchResultPage({ name }: { name: string }) {
  const other = query.value.get("with") ?? "";
  const { data: result, problem, reload } = useGet<BenchResult>(api(["measure", "results", name]));
  const results = useGet<{ items: BenchResultRow[] }>(api(["measure", "results"]));
  const above = <a href="/measure">Measure</a>;
  if (problem?.status === 404) {
    return (
      <>
        <Head title={name} above={above} />
        <Empty title={`There is no result ${name}`}>
          <p>
            It may have been deleted. <a href="/measure">See all results</a>.
          </p>
        </Empty>
      </>
    );
  }
  const rows = results.data?.items ?? [];
  const hasReport = rows.some((row) => row.name === name && row.has_report);
  return (
    <>
      <Head title={name} above={above}>
        {hasReport ? (
          <a class="button" href={api(["measure", "results", name, "export"], { download: "1" })} download={`${name}.html`}>
            Report
          </a>
        ) : null}
      </Head>
      <Failure problem={problem} retry={reload} />
      {!result ? (
        problem ? null : <Loading what="the result" />
      ) : (
        <>
          <Facts
            facts={[
              ["Started", utc(result.started)],
              ["Took", duration(result.seconds * 1000)],
              ["State", result.partial ? <Badge tone="warn">partial: {result.partial}</Badge> : <Badge tone="good">complete</Badge>],
              ["Scale", result.scale],
              ["Targets", result.targets.map((target) => target.description ?? target.name).join("; ")],
              ["Machine of the load", `${result.machine.processor ?? "–"}, ${count(result.machine.cores)} cores`],
              ["Noise", result.machine.noise === undefined ? "–" : `${(result.machine.noise * 100).toFixed(1)} %`],
              ["Command", <code>{result.command}</code>],
            ]}
          />
          <section aria-label="Comparison">
            <SelectField
              label="Compare with"
              value={other}
              options={[["", "no other result"], ...rows.filter((row) => row.name !== name).map((row) => [row.name, `${row.name} (${utc(row.started)})`] as const)]}
              onChange={(value) => setQuery({ with: value })}
            />
            {other ? <Compared before={other} after={name} /> : null}
          </section>
          {result.scenarios.map((scenario) => (
            <Scenario key={scenario.name} scenario={scenario} />
          ))}
        </>
      )}
    </>
  );
}

function Compared({ before, after }: { before: string; after: string }) {
  const { data, problem, reload } = useGet<{ text: string }>(api(["measure", "comparison"], { first: before, second: after }));
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="the comparison" />;
  return (
    <>
      <p class="hint">
        First: <a href={to(["measure", before])}>{before}</a>. Second: {after}.
      </p>
      <pre class="content wide" tabIndex={0}>
        {data.text ? visibleLines(data.text) : "The results have no figures in common."}
      </pre>
    </>
  );
}

interface Row {
  label: string;
  runs: BenchTargetRuns;
}

function Scenario({ scenario }: { scenario: BenchScenario }) {
  const rows = useMemo(() => scenario.points.flatMap((point) => point.runs.map((runs): Row => ({ label: point.label, runs }))), [scenario]);
  const columns = useMemo(() => columnsOf(rows), [rows]);
  const acks = useMemo(() => distributions(rows, "ack"), [rows]);
  const ends = useMemo(() => distributions(rows, "e2e"), [rows]);
  return (
    <section>
      <h2>
        {scenario.title} <span class="soft">{scenario.name}</span>
      </h2>
      <p>{scenario.question}</p>
      {[...scenario.differences, ...scenario.notes].length > 0 ? (
        <ul>
          {[...scenario.differences, ...scenario.notes].map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      ) : null}
      <Table label={`Figures of ${scenario.name}`} columns={columns} total={rows.length} row={(index) => rows[index]}>
        <Empty title="Nothing was measured" />
      </Table>
      <div class="plots distributions">
        {acks.length > 0 ? <Quantiles title="Latency to the acknowledgement, by quantile" lines={acks} /> : null}
        {ends.length > 0 ? <Quantiles title="Latency from end to end, by quantile" lines={ends} /> : null}
      </div>
    </section>
  );
}

function columnsOf(rows: Row[]): Column<Row>[] {
  const known = FIGURES.filter((figure) => rows.some((row) => row.runs.summaries[figure.name]));
  return [
    { id: "point", title: "Measured", cell: (row) => (row.label ? `${row.label}, ${row.runs.target}` : row.runs.target) },
    ...known.map(
      (figure, index): Column<Row> => ({
        id: figure.name,
        title: figure.title,
        width: 130,
        isNumber: true,
        isExtra: index > 1,
        cell: (row) => {
          const summary = row.runs.summaries[figure.name];
          if (!summary) return "–";
          return <span title={`median of ${count(summary.rounds)}, ${figure.text(summary.min)} to ${figure.text(summary.max)}`}>{figure.text(summary.median)}</span>;
        },
      }),
    ),
  ];
}

function distributions(rows: Row[], curve: string): Distribution[] {
  const lines: Distribution[] = [];
  for (const row of rows) {
    const found = row.runs.curves[curve];
    if (found && lines.length < MOST_LINES) lines.push({ name: row.label ? `${row.label}, ${row.runs.target}` : row.runs.target, points: found.points });
  }
  return lines;
}
