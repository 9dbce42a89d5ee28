/** Benchmarks: the results, one result in detail or compared with another, and a run. */
import { segments, to } from "../address";
import { api } from "../api";
import { duration, plural, utc } from "../format";
import { useGet } from "../load";
import { Opens, isDialogOpen } from "../parts/dialog";
import { Head } from "../parts/head";
import { Badge, Empty, Failure, Loading } from "../parts/states";
import { type Column, Table } from "../parts/table";
import type { BenchOverview, BenchResultRow } from "../wire";
import { BenchResultPage } from "./measure/result";
import { RunForm, RunProgress } from "./measure/run";

const EVERY_MS = 5000;

export function Measure() {
  const [, name] = segments.value;
  return name === undefined ? <MeasureOverview /> : <BenchResultPage key={name} name={name} />;
}

const COLUMNS: readonly Column<BenchResultRow>[] = [
  {
    id: "name",
    title: "Result",
    cell: (result) => (
      <>
        <a href={to(["measure", result.name])}>{result.name}</a> {result.partial ? <Badge tone="warn" title={result.partial}>partial</Badge> : null}
      </>
    ),
  },
  {
    id: "scenarios",
    title: "Measured",
    isExtra: true,
    cell: (result) => <span title={result.scenarios.map((it) => it.title).join("; ")}>{result.scenarios.length === 1 ? result.scenarios[0]!.title : plural(result.scenarios.length, "scenario")}</span>,
  },
  { id: "targets", title: "Targets", width: 160, isExtra: true, cell: (result) => result.targets.map((it) => it.name).join(", ") },
  { id: "scale", title: "Scale", width: 100, isExtra: true, cell: (result) => result.scale },
  { id: "seconds", title: "Took", width: 110, isNumber: true, isExtra: true, cell: (result) => duration(result.seconds * 1000) },
  { id: "started", title: "Started", width: 190, isNumber: true, cell: (result) => utc(result.started) },
];

function MeasureOverview() {
  const overview = useGet<BenchOverview>(api(["measure"]), EVERY_MS);
  const found = overview.data;
  const results = useGet<{ items: BenchResultRow[] }>(found?.dir ? api(["measure", "results"]) : null, EVERY_MS);
  if (!found) return overview.problem ? <Failure problem={overview.problem} retry={overview.reload} /> : <Loading what="the benchmarks" />;
  if (found.dir === null) {
    return (
      <>
        <Head title="Measure" />
        <Empty title="This console has no directory for benchmarks">
          <p>
            With a directory, this page shows and compares results of <code>ottla bench</code>, and runs benchmarks:
          </p>
          <p>
            <code>ottla console --bootstrap-server HOST:PORT --bench-dir ottla-bench</code>
          </p>
        </Empty>
      </>
    );
  }
  const items = results.data?.items;
  const reload = () => {
    overview.reload();
    results.reload();
  };
  return (
    <div class="full">
      <Head title="Measure" above={<code>{found.dir}</code>}>
        {found.refusal === null ? <Opens dialog="run">Run a benchmark</Opens> : null}
      </Head>
      {found.refusal === null ? null : <p class="hint">{found.refusal}</p>}
      {found.run ? <RunProgress key={found.run.started} run={found.run} mayStop={found.refusal === null} onEnd={reload} /> : null}
      <Failure problem={results.problem ?? overview.problem} retry={reload} />
      {!items ? (
        results.problem ? null : <Loading what="the results" />
      ) : (
        <Table label="Results" isTall columns={COLUMNS} total={items.length} row={(index) => items[index]} href={(result) => to(["measure", result.name])}>
          <Empty title="Nothing has been measured yet">
            <p>
              <code>ottla bench run NAME --out DIR</code> writes its results to a directory; those in this one are listed here.
            </p>
          </Empty>
        </Table>
      )}
      {isDialogOpen("run") && found.refusal === null ? <RunForm scenarios={found.scenarios} onStart={reload} /> : null}
    </div>
  );
}
