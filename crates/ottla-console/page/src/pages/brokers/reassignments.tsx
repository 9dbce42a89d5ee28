/** Partitions that move, how far they are; cancelling one; electing preferred leaders. */
import { query, to } from "../../address";
import { api, call, session } from "../../api";
import { bytes, count, plural } from "../../format";
import { useGet } from "../../load";
import { Dialog, Opens, isDialogOpen, openDialog } from "../../parts/dialog";
import { say } from "../../parts/notices";
import { Empty, Failure, Loading, Share } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { List, PartitionResult, Reassignment } from "../../wire";
import { settle } from "../topic/partitions";

const ADDRESS = api(["reassignments"], { limit: 1000 });
const CHANGES = api(["reassignments"]);

export function Reassignments() {
  const { data, problem, at, reload } = useGet<List<Reassignment>>(ADDRESS, 2000);
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="reassignments" />;
  const columns: Column<Reassignment>[] = [
    {
      id: "partition",
      title: "Partition",
      cell: (it) => (
        <>
          <a href={to(["topics", it.topic])}>
            {it.topic}-{it.partition}
          </a>
        </>
      ),
    },
    { id: "adding", title: "Adding", width: 110, cell: (it) => it.adding.join(", ") || "–" },
    { id: "removing", title: "Removing", width: 110, isExtra: true, cell: (it) => it.removing.join(", ") || "–" },
    {
      id: "progress",
      title: "Copied",
      width: 240,
      cell: (it) => (it.bytes === null || it.copied_bytes === null ? "–" : <Share part={it.bytes === 0 ? 1 : it.copied_bytes / it.bytes} label={`${bytes(it.copied_bytes)} of ${bytes(it.bytes)}`} />),
    },
    {
      id: "cancel",
      title: "",
      width: 80,
      cell: (it) =>
        session.value?.read_only ? null : (
          <button type="button" class="plain" aria-label={`Cancel the move of ${it.topic}-${it.partition}`} onClick={() => openDialog("cancel", { topic: it.topic, partition: it.partition })}>
            Cancel
          </button>
        ),
    },
  ];
  const chosen = data.items.find((it) => it.topic === query.value.get("topic") && String(it.partition) === query.value.get("partition"));
  return (
    <>
      <div class="bar">
        <span class="soft">{count(data.total)} in progress</span>
        <span class="spring" />
        {data.items.length > 1 ? (
          <Opens dialog="cancel-all" isDangerous>
            Cancel all
          </Opens>
        ) : null}
        {data.items.length === 0 ? <Opens dialog="unthrottle">Remove throttles</Opens> : null}
        <Opens dialog="elect">Elect preferred leaders</Opens>
      </div>
      <Failure problem={problem} at={at} retry={reload} />
      <Table label="Reassignments" isTall columns={columns} total={data.items.length} row={(index) => data.items[index]}>
        <Empty title="No partition is moving">
          <p>
            To move one, open its topic and choose <i>Move</i> in the row of the partition.
          </p>
        </Empty>
      </Table>
      {isDialogOpen("cancel") && chosen ? (
        <Dialog
          title={`Cancel the move of ${chosen.topic}-${chosen.partition}`}
          action="Cancel the move"
          isDangerous
          run={async () => {
            settle(await call<{ items: PartitionResult[] }>("POST", CHANGES, { partitions: [{ topic: chosen.topic, partition: chosen.partition, replicas: null }] }));
            say(`The move of ${chosen.topic}-${chosen.partition} is cancelled.`);
            reload();
          }}
        >
          <p>
            The partition stays on its old replicas. The new ones on {chosen.adding.join(", ")} are deleted, with the {bytes(chosen.copied_bytes)} that are copied.
          </p>
        </Dialog>
      ) : null}
      {isDialogOpen("cancel-all") && data.items.length > 0 ? <CancelAll moves={data.items} reload={reload} /> : null}
      {isDialogOpen("unthrottle") ? <Unthrottle /> : null}
      {isDialogOpen("elect") ? (
        <Dialog
          title="Elect preferred leaders"
          action="Elect"
          run={async () => {
            const done = await call<{ items: PartitionResult[] }>("POST", api(["elections"]), { type: "preferred" });
            settle(done);
            say(done.items.length === 0 ? "Every partition is led by its preferred leader already." : `${plural(done.items.length, "leader")} elected.`);
          }}
        >
          <p>Makes the first replica of each partition its leader again, where it is in sync and another one leads. Nothing is copied; clients of the partitions reconnect to the new leader.</p>
        </Dialog>
      ) : null}
    </>
  );
}

function CancelAll({ moves, reload }: { moves: readonly Reassignment[]; reload: () => void }) {
  const copied = moves.reduce((sum, it) => sum + (it.copied_bytes ?? 0), 0);
  const run = async () => {
    settle(await call<{ items: PartitionResult[] }>("POST", CHANGES, { partitions: moves.map(({ topic, partition }) => ({ topic, partition, replicas: null })) }));
    say(`${plural(moves.length, "move")} cancelled.`);
    reload();
  };
  return (
    <Dialog title="Cancel all moves" action={`Cancel ${plural(moves.length, "move")}`} isDangerous run={run}>
      <p>
        The <b>{plural(moves.length, "partition")}</b> stay on their old replicas. Their new ones are deleted, with the {bytes(copied)} that are copied. Those that have moved already stay where they are. Throttles stay until you remove them.
      </p>
    </Dialog>
  );
}

function Unthrottle() {
  const run = async () => {
    const { brokers, topics } = await call<{ brokers: number; topics: number }>("DELETE", api(["throttles"]));
    say(`The throttles of ${plural(brokers, "broker")} and ${plural(topics, "topic")} are removed.`);
  };
  return (
    <Dialog title="Remove throttles" action="Remove throttles" run={run}>
      <p>No partition moves, so the replication throttles are no longer needed. They are removed from all brokers and topics, also throttles that another tool has set.</p>
    </Dialog>
  );
}
