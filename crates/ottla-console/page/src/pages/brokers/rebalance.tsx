/** A plan of a rebalance: what would move and what it costs, before anything moves; then its first moves, or its file. */
import { useState } from "preact/hooks";

import { go, to } from "../../address";
import { api, call, get, textOf } from "../../api";
import { bytes, count, duration, plural, visible } from "../../format";
import { Dialog, Opens, closeDialog, isDialogOpen } from "../../parts/dialog";
import { CheckField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Empty } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { PartitionResult, RebalancePlan } from "../../wire";
import { settle } from "../topic/partitions";

const MB = 1_000_000;

type BrokerChange = RebalancePlan["brokers"][number];
type PartitionChange = RebalancePlan["changes"][number];

/** `9 → 5`, or one number if it stays. */
const change = (before: string, after: string): string => (before === after ? before : `${before} → ${after}`);
const percent = (value: number | null): string => (value === null ? "–" : `${value} %`);

const BROKERS: readonly Column<BrokerChange>[] = [
  { id: "broker", title: "Broker", width: 90, cell: (it) => <a href={to(["brokers", String(it.id)])}>{it.id}</a> },
  { id: "rack", title: "Rack", isExtra: true, cell: (it) => visible(it.rack ?? "–") },
  { id: "replicas", title: "Replicas", width: 150, isNumber: true, cell: (it) => change(count(it.before.replicas), count(it.after.replicas)) },
  { id: "leaders", title: "Leaders", width: 150, isNumber: true, cell: (it) => change(count(it.before.leaders), count(it.after.leaders)) },
  { id: "bytes", title: "Data", width: 180, isNumber: true, cell: (it) => change(bytes(it.before.bytes), bytes(it.after.bytes)) },
  { id: "disk", title: "Fullest disk", width: 130, isNumber: true, isExtra: true, cell: (it) => change(percent(it.before.disk_percent), percent(it.after.disk_percent)) },
];

const CHANGES: readonly Column<PartitionChange>[] = [
  {
    id: "partition",
    title: "Partition",
    cell: (it) => (
      <a href={to(["topics", it.topic])}>
        {visible(it.topic)}-{it.partition}
      </a>
    ),
  },
  { id: "bytes", title: "Size", width: 100, isNumber: true, cell: (it) => bytes(it.bytes) },
  { id: "before", title: "Replicas now", width: 150, isExtra: true, cell: (it) => it.before.join(", ") },
  { id: "after", title: "Then", width: 150, cell: (it) => it.replicas.join(", ") },
  { id: "what", title: "", width: 220, isExtra: true, cell: (it) => (it.added.length > 0 ? `copied to ${it.added.join(", ")}` : "copies nothing") + (it.changes_leader ? `; ${it.replicas[0]} leads` : "") },
];

/** Why a goal is not reached. */
function unmetText({ goal, broker, has, lower, upper }: RebalancePlan["unmet"][number]): string {
  if (goal === "racks") return `Racks: ${plural(has, "partition")} with more replicas in one rack than needed`;
  if (goal === "disk") return `Disks: one of broker ${broker} stays ${has} % full`;
  return `${goal === "leaders" ? "Leaders" : goal === "replicas" ? "Replicas" : "Bytes in"}: broker ${broker} has ${count(has)}; the goal is ${count(lower)} to ${count(upper)}`;
}

export function Rebalance() {
  const [added, setAdded] = useState("");
  const [emptied, setEmptied] = useState("");
  const [rate, setRate] = useState("50");
  const [ignoresRacks, setIgnoresRacks] = useState(false);
  const [plan, setPlan] = useState<RebalancePlan | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const bytesPerSecond = Math.round(Number(rate) * MB);
  const isFine = Number.isFinite(bytesPerSecond) && bytesPerSecond >= 1;
  /** What is shown must be a plan of what is in the fields. */
  const edit = (set: () => void) => {
    set();
    setPlan(null);
  };
  const make = async (event: Event) => {
    event.preventDefault();
    if (isBusy || !isFine) return;
    setBusy(true);
    setProblem(null);
    setPlan(null);
    try {
      setPlan(await get<RebalancePlan>(api(["rebalance-plan"], { added, emptied, ignores_racks: ignoresRacks, rate: bytesPerSecond })));
    } catch (error) {
      setProblem(textOf(error));
    }
    setBusy(false);
  };
  const first = plan?.changes.filter((it) => it.is_first) ?? [];
  return (
    <>
      <form onSubmit={make} autocomplete="off">
        <div class="row">
          <TextField label="Only onto brokers" value={added} onChange={(text) => edit(() => setAdded(text))} hint="That were added: 4, 5. Onto all if it is empty" />
          <TextField label="Empty brokers" value={emptied} onChange={(text) => edit(() => setEmptied(text))} hint="That are to have no replicas; nothing else moves then" />
          <TextField label="MB/s of a broker" type="number" min={0} value={rate} onChange={(text) => edit(() => setRate(text))} problem={isFine ? null : "more than 0"} hint="For the estimated time" />
        </div>
        <CheckField label="Ignore racks" isChecked={ignoresRacks} onChange={(is) => edit(() => setIgnoresRacks(is))} />
        <p>
          <button type="submit" class="primary" disabled={isBusy || !isFine}>
            {isBusy ? "Planning …" : "Make a plan"}
          </button>{" "}
          <span class="soft">Changes nothing.</span>
        </p>
      </form>
      {problem ? (
        <p class="failure" role="alert">
          {problem}
        </p>
      ) : null}
      {plan ? <Planned plan={plan} first={first} /> : null}
      {plan && isDialogOpen("rebalance") ? <Start plan={plan} first={first} done={() => setPlan(null)} /> : null}
    </>
  );
}

function Planned({ plan, first }: { plan: RebalancePlan; first: readonly PartitionChange[] }) {
  return (
    <>
      <p role="status">
        {plan.changes.length === 0 ? (
          "Nothing is to be moved: the cluster meets the goals as far as it can."
        ) : (
          <>
            <b>{plural(plan.moves, "replica")}</b> of {plural(plan.changes.length, "partition")} would be copied, <b>{bytes(plan.bytes)}</b>, in at least <b>{duration(plan.seconds * 1000)}</b> at {bytes(plan.rate)}/s
            {plan.busiest === null ? "" : `; broker ${plan.busiest} copies most`}.
          </>
        )}
      </p>
      {plan.unmet.length > 0 ? (
        <>
          <p>Not reached:</p>
          <ul>
            {plan.unmet.map((it) => (
              <li key={unmetText(it)}>{unmetText(it)}</li>
            ))}
          </ul>
        </>
      ) : null}
      <Table label="Brokers before and after" columns={BROKERS} total={plan.brokers.length} row={(index) => plan.brokers[index]} />
      {plan.changes.length > 0 ? (
        <>
          <div class="bar">
            <Opens dialog="rebalance">Start the first {plural(first.length, "partition")}</Opens>
            <button type="button" onClick={() => save(plan)}>
              Save the plan
            </button>
            <span class="soft">
              <code>ottla rebalance apply --plan plan.json --throttle {plan.rate}</code> carries out a saved plan as a whole.
            </span>
          </div>
          <Table label="Partitions that move" columns={CHANGES} total={plan.changes.length} row={(index) => plan.changes[index]}>
            <Empty title="Nothing moves" />
          </Table>
        </>
      ) : null}
    </>
  );
}

/** As `kafka-reassign-partitions.sh` and `ottla rebalance apply` read it. */
function save(plan: RebalancePlan): void {
  const partitions = plan.changes.map(({ topic, partition, replicas }) => ({ topic, partition, replicas }));
  const file = URL.createObjectURL(new Blob([JSON.stringify({ version: 1, partitions }, null, 1)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = file;
  link.download = "plan.json";
  link.click();
  URL.revokeObjectURL(file);
}

function Start({ plan, first, done }: { plan: RebalancePlan; first: readonly PartitionChange[]; done: () => void }) {
  const copies = first.reduce((sum, it) => sum + it.added.length, 0);
  const size = first.reduce((sum, it) => sum + it.added.length * it.bytes, 0);
  const [isThrottled, setThrottled] = useState(true);
  const run = async () => {
    settle(await call<{ items: PartitionResult[] }>("POST", api(["reassignments"]), { partitions: first.map(({ topic, partition, replicas }) => ({ topic, partition, replicas })), throttle: isThrottled ? plan.rate : null }));
    say(`${plural(first.length, "partition")} of the plan ${first.length === 1 ? "is" : "are"} started.`);
    closeDialog();
    done();
    go(to(["brokers", "reassignments"]));
    return "stay" as const;
  };
  return (
    <Dialog title="Start moves" action={`Start ${plural(first.length, "partition")}`} run={run}>
      <p>
        Copies <b>{plural(copies, "replica")}</b> with <b>{bytes(size)}</b>. No broker copies more than a few partitions at a time.
        {first.length < plan.changes.length ? ` When they are done, make a plan again for the other ${plural(plan.changes.length - first.length, "partition")}.` : ""}
      </p>
      <p>
        Brokers, Reassignments shows how far they are, and cancels them. Once they are done, elect preferred leaders there, and remove the throttles. <code>ottla rebalance apply</code> does all of it with a saved plan.
      </p>
      <CheckField label={`Throttle to ${bytes(plan.rate)}/s`} isChecked={isThrottled} onChange={setThrottled} hint="Of each broker, sent and received for moves; the throttle must exceed what producers write to the partitions" />
    </Dialog>
  );
}
