/** One topic: partitions, records, groups, settings, producers; and its actions. */
import { segments, to } from "../address";
import { api } from "../api";
import { bytes, count, duration, plural, rate, short } from "../format";
import { useGet } from "../load";
import { Opens, isDialogOpen } from "../parts/dialog";
import { Head, Tabs } from "../parts/head";
import { OverTime } from "../parts/over_time";
import { Settings } from "../parts/settings";
import { Badge, Empty, Facts, Failure, Loading } from "../parts/states";
import type { Topic as TopicData } from "../wire";
import { AddPartitions, DeleteTopic, EmptyTopic } from "./topic/change";
import { GroupsOfTopic } from "./topic/groups";
import { Partitions } from "./topic/partitions";
import { Produce } from "./topic/produce";
import { Producers } from "./topic/producers";
import { Records } from "./topic/records";

export function Topic({ name }: { name: string }) {
  const [, , tab = ""] = segments.value;
  const { data: topic, problem, at, reload } = useGet<TopicData>(api(["topics", name]), 5000);
  const above = <a href="/topics">Topics</a>;
  if (problem?.status === 404) {
    return (
      <>
        <Head title={name} above={above} />
        <Empty title={`There is no topic ${name}`}>
          <p>
            It may have been deleted, or you may not see it. <a href={to(["topics"], { search: name.slice(0, 20) })}>Search similar names</a> or{" "}
            <a href={to(["topics"], { do: "create" })}>create a topic</a>.
          </p>
        </Empty>
      </>
    );
  }
  return (
    <div class={tab === "" ? "" : "full"}>
      <Head
        title={
          <>
            {name} {topic?.is_internal ? <Badge>internal</Badge> : null}
          </>
        }
        above={above}
      >
        <Opens dialog="produce">Produce</Opens>
        <Opens dialog="partitions">Add partitions</Opens>
        <Opens dialog="empty" isDangerous>
          Empty
        </Opens>
        <Opens dialog="delete" isDangerous>
          Delete
        </Opens>
      </Head>
      <Tabs
        label="Topic"
        tabs={[
          { path: ["topics", name], name: "Partitions", count: topic ? count(topic.partitions) : "" },
          { path: ["topics", name, "records"], name: "Records", count: topic ? short(topic.records) : "" },
          { path: ["topics", name, "groups"], name: "Groups", count: topic ? count(topic.group_count) : "" },
          { path: ["topics", name, "settings"], name: "Settings" },
          { path: ["topics", name, "producers"], name: "Producers" },
        ]}
      />
      {tab === "records" ? null : <Failure problem={problem} at={at} retry={reload} />}
      {tab === "records" ? (
        <Records topic={name} partitions={topic?.partitions} />
      ) : tab === "settings" ? (
        <Settings address={api(["topics", name, "settings"])} of={name} />
      ) : tab === "producers" ? (
        <Producers topic={name} />
      ) : !topic ? (
        problem ? null : <Loading what="the topic" />
      ) : tab === "groups" ? (
        <GroupsOfTopic topic={topic} />
      ) : (
        <>
          <Summary topic={topic} />
          <OverTime of={`topic/${name}`} />
          <Partitions topic={topic} reload={reload} />
        </>
      )}
      {isDialogOpen("produce") ? <Produce topic={name} partitions={topic?.partitions} /> : null}
      {topic && isDialogOpen("partitions") ? <AddPartitions topic={topic} reload={reload} /> : null}
      {topic && isDialogOpen("empty") ? <EmptyTopic topic={topic} reload={reload} /> : null}
      {topic && isDialogOpen("delete") ? <DeleteTopic topic={topic} /> : null}
    </div>
  );
}

function Summary({ topic }: { topic: TopicData }) {
  const bad = topic.offline > 0 ? `${plural(topic.offline, "partition")} offline` : topic.under_replicated > 0 ? `${plural(topic.under_replicated, "partition")} under-replicated` : null;
  return (
    <Facts
      facts={[
        ["State", bad ? <Badge tone={topic.offline ? "bad" : "warn"}>{bad}</Badge> : <Badge tone="good">in sync</Badge>],
        ["Replication factor", count(topic.replication_factor)],
        ["Records", count(topic.records)],
        ["Records in", rate(topic.records_per_second)],
        ["Records out", rate(topic.records_out_per_second)],
        ["Size, all replicas", bytes(topic.bytes)],
        ["Cleanup", topic.cleanup_policy ?? "–"],
        ["Kept", topic.retention_ms === null ? "–" : topic.retention_ms < 0 ? "forever" : duration(topic.retention_ms)],
        ["Topic ID", <code>{topic.id}</code>],
      ]}
    />
  );
}
