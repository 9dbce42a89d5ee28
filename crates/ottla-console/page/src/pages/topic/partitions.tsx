/** The partitions of a topic; electing a leader and moving replicas. */
import { useMemo } from "preact/hooks";

import { query, to } from "../../address";
import { api, call, session } from "../../api";
import { useEdit } from "../../draft";
import { bytes, count, plural, time } from "../../format";
import { useGet } from "../../load";
import { Dialog, isDialogOpen, openDialog } from "../../parts/dialog";
import { TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Badge, Empty } from "../../parts/states";
import { type Column, Table, sorted } from "../../parts/table";
import type { Cluster, Partition, PartitionResult, Topic } from "../../wire";
import { orderOf, setOrder } from "../topics";

function Replicas({ partition }: { partition: Partition }) {
  return (
    <span class="replicas">
      {partition.replicas.map((replica) => {
        const isIn = partition.isr.includes(replica);
        const what = replica === partition.leader ? "leader" : isIn ? "in sync" : partition.elr?.includes(replica) ? "eligible leader, not in sync" : "not in sync";
        return (
          <span key={replica} class={replica === partition.leader ? "replica leader" : isIn ? "replica" : "replica out"} title={`Broker ${replica}: ${what}`}>
            {replica}
            <span class="unseen"> {what}</span>
          </span>
        );
      })}
    </span>
  );
}

function valueOf(partition: Partition, by: string): number | null {
  switch (by) {
    case "leader":
      return partition.leader;
    case "bytes":
      return partition.bytes;
    case "records":
      return recordsOf(partition);
    case "latest":
      return partition.latest_timestamp;
    default:
      return partition.partition;
  }
}

const recordsOf = (it: Partition): number | null => (it.log_end_offset === null || it.log_start_offset === null ? null : it.log_end_offset - it.log_start_offset);

export function Partitions({ topic, reload }: { topic: Topic; reload: () => void }) {
  const order = orderOf("partition");
  const rows = useMemo(() => sorted(topic.partition_list, order, valueOf), [topic.partition_list, order.by, order.isDescending]);
  const mayChange = !session.value?.read_only;
  const columns: Column<Partition>[] = [
    {
      id: "partition",
      title: "Partition",
      width: 130,
      isSortable: true,
      cell: (it) => (
        <>
          <a href={to(["topics", topic.name, "records"], { partitions: it.partition, from: "last:100" })}>{it.partition}</a>
          {it.leader === null || it.leader < 0 ? <Badge tone="bad">offline</Badge> : it.isr.length < it.replicas.length ? <Badge tone="warn">not in sync</Badge> : null}
        </>
      ),
    },
    { id: "replicas", title: "Replicas", cell: (it) => <Replicas partition={it} />, help: "Filled: the leader; crossed out: not in sync" },
    { id: "start", title: "Start offset", width: 120, isNumber: true, isExtra: true, cell: (it) => count(it.log_start_offset) },
    { id: "end", title: "End offset", width: 120, isNumber: true, cell: (it) => count(it.log_end_offset) },
    { id: "records", title: "Records", width: 110, isNumber: true, isSortable: true, isExtra: true, cell: (it) => count(recordsOf(it)) },
    { id: "bytes", title: "Size", width: 90, isNumber: true, isSortable: true, cell: (it) => bytes(it.bytes) },
    { id: "latest", title: "Latest timestamp", width: 205, isNumber: true, isSortable: true, isExtra: true, cell: (it) => time(it.latest_timestamp) },
    ...(mayChange
      ? [
          {
            id: "change",
            title: "",
            width: 70,
            isExtra: true,
            cell: (it: Partition) => (
              <button type="button" class="plain" aria-label={`Move partition ${it.partition}`} onClick={() => openDialog("move", { partition: it.partition })}>
                Move
              </button>
            ),
          },
        ]
      : []),
  ];
  const moved = topic.partition_list.find((it) => String(it.partition) === query.value.get("partition"));
  return (
    <section>
      <Table
        label="Partitions"
        columns={columns}
        total={rows.length}
        row={(index) => rows[index]}
        href={(it) => to(["topics", topic.name, "records"], { partitions: it.partition, from: "last:100" })}
        order={order}
        onOrder={setOrder}
        tone={(it) => (it.leader === null || it.leader < 0 ? "bad" : undefined)}
      >
        <Empty title="The topic has no partitions that you can see" />
      </Table>
      {isDialogOpen("move") && moved ? <Move topic={topic.name} partition={moved} reload={reload} /> : null}
    </section>
  );
}

/** Fails with the first problem of the partitions. */
export function settle(results: { items: PartitionResult[] }): void {
  const bad = results.items.filter((it) => it.problem);
  if (bad[0]) throw new Error(`${bad[0].topic}-${bad[0].partition}: ${bad[0].problem}${bad.length > 1 ? `; and ${plural(bad.length - 1, "partition")} more` : ""}`);
}

function Move({ topic, partition, reload }: { topic: string; partition: Partition; reload: () => void }) {
  const { data: cluster } = useGet<Cluster>(api(["cluster"]));
  const [text, setText] = useEdit(`move ${topic}-${partition.partition}`, partition.replicas.join(", "));
  const wanted = text.split(/[\s,]+/).filter(Boolean);
  const replicas = wanted.map(Number);
  const brokers = cluster?.brokers.map((broker) => broker.id);
  const unknown = wanted.find((id, index) => !/^\d+$/.test(id) || (brokers && !brokers.includes(replicas[index]!)));
  const twice = replicas.find((id, index) => replicas.indexOf(id) !== index);
  const problem = unknown !== undefined ? `“${unknown}” is no broker of this cluster${brokers ? `; there are ${brokers.join(", ")}` : ""}` : twice !== undefined ? `broker ${twice} is named twice` : null;
  const added = replicas.filter((id) => !partition.replicas.includes(id));
  const removed = partition.replicas.filter((id) => !replicas.includes(id));
  const run = async () => {
    settle(await call<{ items: PartitionResult[] }>("POST", api(["reassignments"]), { partitions: [{ topic, partition: partition.partition, replicas }] }));
    say(`Partition ${topic}-${partition.partition} moves to ${replicas.join(", ")}; see Brokers, Reassignments.`);
    reload();
  };
  return (
    <Dialog title={`Move partition ${partition.partition} of ${topic}`} action="Move" run={run} isReady={problem === null && replicas.length > 0 && replicas.join() !== partition.replicas.join()}>
      <p>
        Now on {partition.replicas.join(", ")}; {bytes(partition.bytes)} each.
      </p>
      <TextField label="Replicas, the preferred leader first" value={text} onChange={setText} problem={problem} isFocused />
      {problem === null ? (
        <p>
          {added.length > 0 ? `Copies ${bytes(partition.bytes)} to ${added.length === 1 ? "broker" : "each of the brokers"} ${added.join(", ")}. ` : "Copies nothing. "}
          {removed.length > 0 ? `Deletes the replica on ${removed.join(", ")}. ` : ""}
          {replicas[0] !== partition.replicas[0] ? `Broker ${replicas[0]} becomes the preferred leader. ` : ""}
          {replicas.length !== partition.replicas.length ? `The replication factor of this partition changes from ${partition.replicas.length} to ${replicas.length}.` : ""}
        </p>
      ) : null}
    </Dialog>
  );
}
