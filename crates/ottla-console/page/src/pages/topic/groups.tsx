import { to } from "../../address";
import { count, visible } from "../../format";
import { Badge, Empty } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { Topic } from "../../wire";
import { stateTone } from "../groups";

type Row = Topic["groups"][number];

const COLUMNS: readonly Column<Row>[] = [
  { id: "group", title: "Group", cell: (group) => <a href={to(["groups", group.group_id])}>{visible(group.group_id)}</a> },
  { id: "type", title: "Type", width: 110, cell: (group) => group.type },
  { id: "state", title: "State", width: 150, cell: (group) => <Badge tone={stateTone(group.state)}>{group.state}</Badge> },
  { id: "lag", title: "Lag", width: 120, isNumber: true, cell: (group) => count(group.lag) },
];

export function GroupsOfTopic({ topic }: { topic: Topic }) {
  return (
    <>
      <Table label="Groups of the topic" columns={COLUMNS} total={topic.groups.length} row={(index) => topic.groups[index]} href={(group) => to(["groups", group.group_id])}>
        <Empty title="No group reads from this topic">
          <p>
            A group is listed once it has committed an offset here, or has a member with a partition. Start a consumer with a <code>group.id</code>, or <a href={to(["topics", topic.name, "records"], { from: "last:100" })}>look at the records</a>.
          </p>
        </Empty>
      </Table>
      {topic.group_count > topic.groups.length ? (
        <p class="hint">
          The {topic.groups.length} with the largest lag of {count(topic.group_count)}.
        </p>
      ) : null}
    </>
  );
}
