/** The producers of each partition, and transactions that hold back consumers. */
import { query } from "../../address";
import { api, call, session } from "../../api";
import { ago, count, plural, visible } from "../../format";
import { useGet } from "../../load";
import { Dialog, isDialogOpen, openDialog } from "../../parts/dialog";
import { say } from "../../parts/notices";
import { Badge, Empty, Failure, Loading } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { PartitionProducer } from "../../wire";

const idOf = (it: PartitionProducer): string => `${it.partition}/${it.producer_id}/${it.producer_epoch}`;

export function Producers({ topic }: { topic: string }) {
  const { data, problem, at, reload } = useGet<{ items: PartitionProducer[] }>(api(["topics", topic, "producers"]), 5000);
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="producers" />;
  const columns: Column<PartitionProducer>[] = [
    {
      id: "partition",
      title: "Partition",
      width: 170,
      cell: (it) => (
        <>
          {it.partition} {it.is_hanging ? <Badge tone="bad">hanging</Badge> : it.transaction_start_offset === null ? null : <Badge tone="warn">open</Badge>}
        </>
      ),
    },
    { id: "transactional", title: "Transactional ID", cell: (it) => visible(it.transactional_id ?? "–") },
    { id: "producer", title: "Producer ID", width: 130, isNumber: true, cell: (it) => `${it.producer_id} e${it.producer_epoch}`, help: "ID and epoch" },
    { id: "sequence", title: "Sequence", width: 110, isNumber: true, isExtra: true, cell: (it) => count(it.last_sequence) },
    { id: "last", title: "Last write", width: 130, isNumber: true, isExtra: true, cell: (it) => ago(it.last_timestamp) },
    { id: "holds", title: "Holds back", width: 110, isNumber: true, cell: (it) => count(it.holds_back), help: "Offsets that read_committed consumers cannot read" },
    {
      id: "abort",
      title: "",
      width: 80,
      cell: (it) =>
        it.is_hanging && !session.value?.read_only ? (
          <button type="button" class="danger" onClick={() => openDialog("abort", { of: idOf(it) })}>
            Abort
          </button>
        ) : null,
    },
  ];
  const rows = [...data.items].sort((a, b) => Number(b.is_hanging) - Number(a.is_hanging) || (b.holds_back ?? -1) - (a.holds_back ?? -1) || a.partition - b.partition);
  const chosen = isDialogOpen("abort") ? rows.find((it) => it.is_hanging && idOf(it) === query.value.get("of")) : undefined;
  return (
    <>
      <Failure problem={problem} at={at} retry={reload} />
      <Table label="Producers" isTall columns={columns} total={rows.length} row={(index) => rows[index]}>
        <Empty title="No producer has state here">
          <p>Only idempotent and transactional producers leave state in a partition, until it expires.</p>
        </Empty>
      </Table>
      {chosen ? (
        <Dialog
          title="Abort the hanging transaction"
          action="Abort transaction"
          isDangerous
          run={async () => {
            const { partition, producer_id, producer_epoch, coordinator_epoch, transaction_start_offset } = chosen;
            await call("POST", api(["topics", topic, "producers", "abort"]), { partition, producer_id, producer_epoch, coordinator_epoch, transaction_start_offset });
            say(`The transaction in ${topic}-${partition} is aborted.`);
            reload();
          }}
        >
          <p>
            Writes an abort marker for producer {chosen.producer_id} (epoch {chosen.producer_epoch}) to partition {chosen.partition}. No coordinator knows this transaction, so nothing else will end it.{" "}
            {chosen.holds_back === null ? "" : `Consumers with isolation.level=read_committed can then read ${plural(chosen.holds_back, "offset")} that it holds back; `}
            its own records are skipped by them.
          </p>
        </Dialog>
      ) : null}
    </>
  );
}
