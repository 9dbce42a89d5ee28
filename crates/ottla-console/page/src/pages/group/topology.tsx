/** The topology of a streams group: what each part of the application reads and keeps. */
import { to } from "../../address";
import { visible } from "../../format";
import { type Column, Table } from "../../parts/table";
import type { GroupTasks, GroupTopology } from "../../wire";

type Part = GroupTopology["subtopologies"][number];

const topics = (names: readonly string[]) =>
  names.length === 0
    ? "–"
    : names.map((name, index) => (
        <span key={name}>
          {index > 0 ? ", " : ""}
          <a href={to(["topics", name])}>{visible(name)}</a>
        </span>
      ));

const COLUMNS: readonly Column<Part>[] = [
  { id: "id", title: "Subtopology", width: 110, cell: (it) => visible(it.id) },
  { id: "sources", title: "Reads", cell: (it) => topics(it.source_topics) },
  { id: "repartitions", title: "Reads repartitioned", isExtra: true, cell: (it) => topics(it.repartition_source_topics) },
  { id: "changelogs", title: "Keeps state in", isExtra: true, cell: (it) => topics(it.state_changelog_topics) },
];

export function Topology({ topology }: { topology: GroupTopology }) {
  const parts = topology.subtopologies;
  return (
    <section>
      <h2>
        Topology <span class="soft">epoch {topology.epoch}</span>
      </h2>
      <Table label="Topology" columns={COLUMNS} total={parts.length} row={(index) => parts[index]} />
    </section>
  );
}

/** `active 0_0, 0_1; standby 1_0`: a task is named after its subtopology and its partition, as Kafka Streams does. */
export const textOfTasks = (tasks: readonly GroupTasks[]): string =>
  ["active", "standby", "warmup"]
    .map((role) => [role, tasks.filter((it) => it.role === role).flatMap((it) => it.partitions.map((partition) => `${it.subtopology}_${partition}`))] as const)
    .filter(([, names]) => names.length > 0)
    .map(([role, names]) => `${role} ${names.join(", ")}`)
    .join("; ");
