/** A plan of a rebalance: the moves and their cost, before anything moves; then its progress, or its file. */
import { useEffect, useRef, useState } from "preact/hooks";

import { to } from "../../address";
import { api, call, get, session, textOf } from "../../api";
import { useDraft } from "../../draft";
import { bytes, count, duration, plural, visible } from "../../format";
import { Dialog, Opens, closeDialog, isDialogOpen } from "../../parts/dialog";
import { CheckField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Empty } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { RebalancePlan, RebalanceRun } from "../../wire";

const MB = 1_000_000;
/** Between two looks at a rebalance. */
const PAUSE_MS = 2000;

const FIELDS = { added: "", emptied: "", fullest: "80", rate: "50", ignoresRacks: false };

type BrokerChange = RebalancePlan["brokers"][number];
type PartitionChange = RebalancePlan["changes"][number];

/** `9 → 5`, or one number if it stays. */
const fromTo = (before: string, after: string): string => (before === after ? before : `${before} → ${after}`);
const percent = (value: number | null): string => (value === null ? "–" : `${value} %`);

const BROKERS: readonly Column<BrokerChange>[] = [
  { id: "broker", title: "Broker", width: 90, cell: (it) => <a href={to(["brokers", String(it.id)])}>{it.id}</a> },
  { id: "rack", title: "Rack", isExtra: true, cell: (it) => visible(it.rack ?? "–") },
  { id: "replicas", title: "Replicas", width: 150, isNumber: true, cell: (it) => fromTo(count(it.before.replicas), count(it.after.replicas)) },
  { id: "leaders", title: "Leaders", width: 150, isNumber: true, cell: (it) => fromTo(count(it.before.leaders), count(it.after.leaders)) },
  { id: "bytes", title: "Data", width: 180, isNumber: true, cell: (it) => fromTo(bytes(it.before.bytes), bytes(it.after.bytes)) },
  { id: "disk", title: "Fullest disk", width: 130, isNumber: true, isExtra: true, cell: (it) => fromTo(percent(it.before.disk_percent), percent(it.after.disk_percent)) },
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
  const [fields, change, drop] = useDraft("rebalance", FIELDS);
  const { added, emptied, fullest, rate, ignoresRacks } = fields;
  const [plan, setPlan] = useState<RebalancePlan | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const bytesPerSecond = Math.round(Number(rate) * MB);
  const isRateFine = Number.isFinite(bytesPerSecond) && bytesPerSecond >= 1;
  const isFullestFine = /^[0-9]+$/.test(fullest) && Number(fullest) >= 1 && Number(fullest) <= 100;
  const isFine = isRateFine && isFullestFine;
  /** The shown plan must belong to the values of the fields, also if they are changed while it is made. */
  const edits = useRef(0);
  const edit = (part: Partial<typeof FIELDS>) => {
    change(part);
    edits.current += 1;
    setPlan(null);
  };
  const make = async (event: Event) => {
    event.preventDefault();
    if (isBusy || !isFine) return;
    setBusy(true);
    setProblem(null);
    setPlan(null);
    const before = edits.current;
    try {
      const made = await get<RebalancePlan>(api(["rebalance-plan"], { added, emptied, max_disk_percent: fullest, ignores_racks: ignoresRacks, rate: bytesPerSecond }));
      if (edits.current === before) setPlan(made);
    } catch (error) {
      if (edits.current === before) setProblem(textOf(error));
    }
    setBusy(false);
  };
  const [run, setRun] = useRun();
  return (
    <>
      {run ? <Run run={run} changed={setRun} /> : null}
      <form onSubmit={make} autocomplete="off">
        <div class="row">
          <TextField label="Only onto brokers" value={added} onChange={(text) => edit({ added: text })} hint="Added brokers, such as 4, 5. Empty: all brokers" />
          <TextField label="Empty brokers" value={emptied} onChange={(text) => edit({ emptied: text })} hint="Brokers that give up all replicas; no other replicas move" />
          <TextField label="Fullest disk, %" type="number" min={1} value={fullest} onChange={(text) => edit({ fullest: text })} problem={isFullestFine ? null : "1 to 100"} hint="max_disk_percent: no disk is filled beyond it" />
          <TextField label="MB/s of a broker" type="number" min={0} value={rate} onChange={(text) => edit({ rate: text })} problem={isRateFine ? null : "more than 0"} hint="For the estimated time" />
        </div>
        <CheckField label="Ignore racks" isChecked={ignoresRacks} onChange={(is) => edit({ ignoresRacks: is })} />
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
      {plan ? <Planned plan={plan} /> : null}
      {plan && isDialogOpen("rebalance") ? (
        <Start
          plan={plan}
          started={(it) => {
            drop();
            setPlan(null);
            setRun(it);
          }}
        />
      ) : null}
    </>
  );
}

const isGoing = (run: RebalanceRun): boolean => run.state === "running" || run.state === "cancelling";

/** The newest rebalance of this session, refreshed while it runs. */
function useRun(): [RebalanceRun | null, (run: RebalanceRun | null) => void] {
  const [run, setRun] = useState<RebalanceRun | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0;
    const abort = new AbortController();
    const again = () => {
      timer = setTimeout(() => setTurn((before) => before + 1), PAUSE_MS);
    };
    get<{ rebalance: RebalanceRun | null }>(api(["rebalance"]), abort.signal).then(
      ({ rebalance }) => {
        setRun(rebalance);
        if (rebalance && isGoing(rebalance)) again();
      },
      () => {
        if (!abort.signal.aborted) again();
      },
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [turn]);
  return [
    run,
    (it) => {
      setRun(it);
      setTurn((before) => before + 1);
    },
  ];
}

function Run({ run, changed }: { run: RebalanceRun; changed: (run: RebalanceRun | null) => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const cancel = async () => {
    setProblem(null);
    try {
      changed((await call<{ rebalance: RebalanceRun }>("DELETE", api(["rebalance"]))).rebalance);
    } catch (error) {
      setProblem(textOf(error));
    }
  };
  const words = { running: "The rebalance is running", cancelling: "The rebalance is being cancelled", done: "The rebalance is done", cancelled: "The rebalance is cancelled", failed: "The rebalance has stopped" }[run.state];
  return (
    <section class="card" aria-label="Rebalance">
      <p role="status">
        <b>{words}</b>: {count(run.moved)} of {plural(run.moves, "replica")} moved, {bytes(run.copied_bytes)} of {bytes(run.bytes)}
        {run.state === "running" ? `, ${plural(run.moving, "partition")} moving` : ""}
        {run.state === "done" ? `, ${plural(run.elected, "leader")} elected; the throttles are removed` : ""}.
        {run.not_elected > 0 ? ` ${plural(run.not_elected, "leader")} could not be elected; elect the preferred leaders on Reassignments.` : ""}
      </p>
      {run.problem ? (
        <p class="failure" role="alert">
          {visible(run.problem)}
        </p>
      ) : null}
      {isGoing(run) ? (
        <div class="bar">
          {session.value?.read_only ? null : (
            <button type="button" class="danger" disabled={run.state === "cancelling"} onClick={() => void cancel()}>
              Cancel the rebalance
            </button>
          )}
          <span class="soft">It continues without this page. Cancelling stops the moves in progress; finished moves stay.</span>
        </div>
      ) : null}
      {problem ? (
        <p class="failure" role="alert">
          {problem}
        </p>
      ) : null}
    </section>
  );
}

function Planned({ plan }: { plan: RebalancePlan }) {
  return (
    <>
      <p role="status">
        {plan.changes.length === 0 ? (
          "No moves are needed: the cluster meets the goals as far as possible."
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
            <Opens dialog="rebalance">Carry out the plan</Opens>
            <button type="button" onClick={() => save(plan)}>
              Save the plan
            </button>
            <span class="soft">
              <code>ottla rebalance apply --plan plan.json --throttle {plan.rate}</code> carries out a saved plan.
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

function Start({ plan, started }: { plan: RebalancePlan; started: (run: RebalanceRun) => void }) {
  const [isThrottled, setThrottled] = useState(true);
  const run = async () => {
    const partitions = plan.changes.map(({ topic, partition, replicas }) => ({ topic, partition, replicas }));
    const { rebalance } = await call<{ rebalance: RebalanceRun }>("POST", api(["rebalance"]), { partitions, throttle: isThrottled ? plan.rate : null });
    say(`The rebalance of ${plural(plan.changes.length, "partition")} has started.`);
    closeDialog();
    started(rebalance);
    return "stay" as const;
  };
  return (
    <Dialog title="Carry out the plan" action={`Move ${plural(plan.changes.length, "partition")}`} run={run}>
      <p>
        Copies <b>{plural(plan.moves, "replica")}</b> with <b>{bytes(plan.bytes)}</b>, elects the leaders of the plan, and removes the throttles. No broker copies more than 5 partitions at a time.
      </p>
      <p>It continues without this page, and can be cancelled here. If you log out, moves in progress continue, and throttles stay.</p>
      <CheckField label={`Throttle to ${bytes(plan.rate)}/s`} isChecked={isThrottled} onChange={setThrottled} hint="For each broker, sent and received for moves. It must exceed the rate at which producers write to the partitions" />
    </Dialog>
  );
}
