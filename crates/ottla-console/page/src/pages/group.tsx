/** One group: why it is in its state, lag by partition and over time, members; resetting offsets and deleting. */
import { useMemo } from "preact/hooks";

import { go, query, segments, to } from "../address";
import { api, call, session } from "../api";
import { count, plural, visible } from "../format";
import { useGet } from "../load";
import { Dialog, Opens, isDialogOpen, openDialog } from "../parts/dialog";
import { Search } from "../parts/fields";
import { Head, Tabs } from "../parts/head";
import { say } from "../parts/notices";
import { OverTime } from "../parts/over_time";
import { Settings } from "../parts/settings";
import { Badge, Empty, Facts, Failure, Loading } from "../parts/states";
import { type Column, Table, sorted } from "../parts/table";
import type { Group as GroupData, GroupMember, GroupPartition, TopicSelection } from "../wire";
import { ResetOffsets, SetOffset } from "./group/offsets";
import { Topology, textOfTasks } from "./group/topology";
import { stateTone } from "./groups";
import { orderOf, setOrder } from "./topics";

export function Group({ name }: { name: string }) {
  const [, , tab = ""] = segments.value;
  const { data: group, problem, at, reload } = useGet<GroupData>(api(["groups", name]), 3000);
  const above = <a href="/groups">Groups</a>;
  if (problem?.status === 404) {
    return (
      <>
        <Head title={visible(name)} above={above} />
        <Empty title={`There is no group ${visible(name)}`}>
          <p>
            It may have been deleted, or its offsets have expired. <a href="/groups">See all groups</a>.
          </p>
        </Empty>
      </>
    );
  }
  if (!group) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="the group" />;
  const isEmpty = group.member_list.length === 0;
  return (
    <div class={tab === "" ? "" : "full"}>
      <Head title={visible(name)} above={above}>
        <Opens dialog="reset">Reset offsets</Opens>
        <Opens dialog="delete" isDangerous>
          Delete
        </Opens>
      </Head>
      <Failure problem={problem} at={at} retry={reload} />
      <Tabs
        label="Group"
        tabs={[
          { path: ["groups", name], name: "Lag", count: count(group.lag) },
          { path: ["groups", name, "members"], name: "Members", count: count(group.member_list.length) },
          { path: ["groups", name, "settings"], name: "Settings" },
        ]}
      />
      {tab === "members" ? (
        <Members group={group} />
      ) : tab === "settings" ? (
        <Settings address={api(["groups", name, "settings"])} of={name} />
      ) : (
        <>
          {group.why ? (
            <p class={`health ${stateTone(group.state) === "good" ? "ok" : "warning"}`}>
              <span class="dot" aria-hidden="true" /> {group.why}
            </p>
          ) : null}
          <Facts
            facts={[
              ["State", <Badge tone={stateTone(group.state)}>{group.state}</Badge>],
              ["Type", group.type + (group.protocol_type && group.protocol_type !== group.type ? ` (${group.protocol_type})` : "")],
              ["Members", count(group.member_list.length)],
              ["Lag", count(group.lag)],
              ["Assignor", group.assignor ?? "–"],
              ["Epoch", group.group_epoch === null ? "–" : `${group.group_epoch}${group.assignment_epoch === null ? "" : `, assigned ${group.assignment_epoch}`}`],
              ["Coordinator", group.coordinator === null ? "–" : <a href={to(["brokers", String(group.coordinator)])}>broker {group.coordinator}</a>],
            ]}
          />
          <OverTime of={`group/${name}`} />
          <Lag group={group} />
          {group.topology ? <Topology topology={group.topology} /> : null}
        </>
      )}
      {isDialogOpen("reset") ? <ResetOffsets group={group} reload={reload} /> : null}
      {isDialogOpen("set") ? <SetOffset group={group} reload={reload} /> : null}
      {isDialogOpen("delete") ? <DeleteGroup group={group} isEmpty={isEmpty} /> : null}
    </div>
  );
}

function valueOf(it: GroupPartition, by: string): string | number | null {
  switch (by) {
    case "lag":
      return it.lag;
    case "member":
      return it.member_id;
    default:
      return it.topic + "\u0000" + String(it.partition).padStart(9, "0");
  }
}

function Lag({ group }: { group: GroupData }) {
  const order = orderOf("lag", true);
  const search = (query.value.get("search") ?? "").toLowerCase();
  const rows = useMemo(() => {
    const found = search ? group.partition_list.filter((it) => `${it.topic}-${it.partition}`.toLowerCase().includes(search)) : group.partition_list;
    return sorted(found, order, valueOf);
  }, [group.partition_list, search, order.by, order.isDescending]);
  const clients = useMemo(() => new Map(group.member_list.map((member) => [member.member_id, member])), [group.member_list]);
  const columns: Column<GroupPartition>[] = [
    {
      id: "partition",
      title: "Partition",
      isSortable: true,
      cell: (it) => (
        <>
          <a href={to(["topics", it.topic])}>
            {it.topic}-{it.partition}
          </a>
        </>
      ),
    },
    { id: "committed", title: group.type === "share" ? "Start offset" : "Committed", width: 120, isNumber: true, cell: (it) => count(it.committed_offset) },
    { id: "end", title: "End offset", width: 120, isNumber: true, isExtra: true, cell: (it) => count(it.log_end_offset) },
    { id: "lag", title: "Lag", width: 110, isNumber: true, isSortable: true, cell: (it) => <LagCell it={it} /> },
    {
      id: "member",
      title: "Member",
      width: 220,
      isSortable: true,
      isExtra: true,
      cell: (it) => {
        const member = it.member_id === null ? undefined : clients.get(it.member_id);
        return member ? <span title={member.member_id}>{member.client_id} <span class="soft">{member.host}</span></span> : <span class="soft">{it.member_id ?? "none"}</span>;
      },
    },
    {
      id: "set",
      title: "",
      width: 60,
      cell: (it) =>
        session.value?.read_only ? null : (
          <button type="button" class="plain" aria-label={`Set the offset of ${it.topic}-${it.partition}`} onClick={() => openDialog("set", { topic: it.topic, partition: it.partition })}>
            Set
          </button>
        ),
    },
  ];
  return (
    <section>
      <div class="bar">
        <h2>Partitions</h2>
        <Search label="Search partitions" />
      </div>
      <Table label="Lag by partition" columns={columns} total={rows.length} row={(index) => rows[index]} order={order} onOrder={setOrder} tone={(it) => (group.member_list.length > 0 && it.member_id === null && (it.lag ?? 0) > 0 ? "warn" : undefined)}>
        <Empty title={search ? "No partition matches" : "The group has no partitions"}>
          <p>{search ? "The search matches topic and partition, such as orders-3." : "It has committed no offset, and no member has a partition. It may still be joining."}</p>
        </Empty>
      </Table>
    </section>
  );
}

function LagCell({ it }: { it: GroupPartition }) {
  if (it.committed_offset !== null && it.log_start_offset !== null && it.committed_offset < it.log_start_offset) {
    return <Badge tone="bad" title={`Committed ${it.committed_offset}, but the log starts at ${it.log_start_offset}: records were deleted before the group read them`}>{count(it.lag)} out of range</Badge>;
  }
  return <>{count(it.lag)}</>;
}

function Members({ group }: { group: GroupData }) {
  const columns: Column<GroupMember>[] = [
    { id: "client", title: "Client", cell: (member) => <span title={member.member_id}>{visible(member.client_id)} <span class="soft">{member.instance_id ? `static ${member.instance_id}` : visible(member.member_id)}</span></span> },
    { id: "host", title: "Host", width: 150, isExtra: true, cell: (member) => member.host },
    { id: "epoch", title: "Epoch", width: 80, isNumber: true, isExtra: true, cell: (member) => count(member.epoch) },
    { id: "partitions", title: "Partitions", width: 104, isNumber: true, cell: (member) => count(sizeOf(member.assignment)) },
    { id: "assignment", title: "Assignment", width: 420, cell: (member) => <Assignment member={member} /> },
  ];
  return (
    <Table label="Members" isTall columns={columns} total={group.member_list.length} row={(index) => group.member_list[index]}>
      <Empty title="The group has no members">
        <p>The group has no consumers, so its lag grows with every record. Start its consumers; their committed offsets are kept until they expire.</p>
      </Empty>
    </Table>
  );
}

const sizeOf = (selection: TopicSelection): number => selection.reduce((sum, it) => sum + (it.partitions?.length ?? 0), 0);
const textOfSelection = (selection: TopicSelection): string => selection.map((it) => `${it.topic}: ${it.partitions?.join(", ") ?? "all"}`).join("; ");

function Assignment({ member }: { member: GroupMember }) {
  const now = member.tasks ? textOfTasks(member.tasks) : textOfSelection(member.assignment);
  const target = member.target_assignment ? textOfSelection(member.target_assignment) : now;
  return (
    <span title={now}>
      {now || <span class="soft">nothing</span>}
      {target === now ? null : <Badge tone="warn" title={target}>changing to {plural(sizeOf(member.target_assignment ?? []), "partition")}</Badge>}
    </span>
  );
}

function DeleteGroup({ group, isEmpty }: { group: GroupData; isEmpty: boolean }) {
  const run = async () => {
    await call("DELETE", api(["groups", group.group_id], { confirm: group.group_id }));
    say(`Group ${group.group_id} is deleted.`);
    go("/groups", "replace");
    return "stay" as const;
  };
  return (
    <Dialog title={`Delete group ${group.group_id}`} action="Delete group" isDangerous typed={group.group_id} run={run} isReady={isEmpty}>
      {isEmpty ? (
        <p>
          Deletes the offsets of <b>{plural(group.partition_list.filter((it) => it.committed_offset !== null).length, "partition")}</b>. Consumers that start with this group again begin where their <code>auto.offset.reset</code> says; a lag of{" "}
          <b>{plural(group.lag, "record")}</b> is then forgotten. This cannot be undone.
        </p>
      ) : (
        <p>
          The group has {plural(group.member_list.length, "member")}. Only a group without members can be deleted: stop its consumers first.
        </p>
      )}
    </Dialog>
  );
}
