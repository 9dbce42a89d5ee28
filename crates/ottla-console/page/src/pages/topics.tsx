/** All topics, with the lag of their groups in the same table. */
import { go, query, setQuery, to } from "../address";
import { api, session } from "../api";
import { bytes, count, duration, plural, rate, short, visible } from "../format";
import { useKeys } from "../keys";
import { useList } from "../load";
import { CreateTopic } from "./topic/create";
import { Opens, isDialogOpen, openDialog } from "../parts/dialog";
import { CheckField, Search } from "../parts/fields";
import { Head } from "../parts/head";
import { ListTable } from "../parts/list";
import { Badge, Empty, MayNotSee } from "../parts/states";
import type { Column, Order } from "../parts/table";
import type { TopicRow } from "../wire";

const EVERY_MS = 5000;

/** The order in the address: `sort` and `order`. */
export function orderOf(by: string, isDescending = false): Order {
  const sort = query.value.get("sort");
  return sort ? { by: sort, isDescending: query.value.get("order") === "desc" } : { by, isDescending };
}

export const setOrder = (order: Order): void => setQuery({ sort: order.by, order: order.isDescending ? "desc" : "asc" });

const COLUMNS: readonly Column<TopicRow>[] = [
  {
    id: "name",
    title: "Topic",
    isSortable: true,
    cell: (topic) => (
      <>
        <a href={to(["topics", topic.name])}>{topic.name}</a>
        {topic.offline ? <Badge tone="bad">{count(topic.offline)} offline</Badge> : null}
        {topic.under_replicated ? <Badge tone="warn">{count(topic.under_replicated)} under-replicated</Badge> : null}
        {topic.is_internal ? <Badge>internal</Badge> : null}
      </>
    ),
  },
  { id: "partitions", title: "Partitions", width: 96, isNumber: true, isSortable: true, isExtra: true, cell: (topic) => `${count(topic.partitions)} × ${topic.replication_factor}`, help: "Partitions × replication factor" },
  { id: "records", title: "Records", width: 88, isNumber: true, isSortable: true, isExtra: true, cell: (topic) => short(topic.records), help: "End minus start offsets" },
  { id: "bytes", title: "Size", width: 88, isNumber: true, isSortable: true, cell: (topic) => bytes(topic.bytes), help: "All replicas" },
  { id: "records_per_second", title: "Records in", width: 100, isNumber: true, isSortable: true, isExtra: true, cell: (topic) => rate(topic.records_per_second), help: "Written per second" },
  { id: "records_out_per_second", title: "Records out", width: 106, isNumber: true, isSortable: true, isExtra: true, cell: (topic) => rate(topic.records_out_per_second), help: "Read per second, according to committed offsets" },
  { id: "retention_ms", title: "Kept", width: 110, isNumber: true, isSortable: true, isExtra: true, cell: (topic) => <Retention topic={topic} /> },
  { id: "lag", title: "Lag", width: 84, isNumber: true, isSortable: true, cell: (topic) => (topic.group_count ? short(topic.lag) : "–"), help: "The largest lag of its groups" },
  { id: "groups", title: "Groups", width: 200, isExtra: true, cell: (topic) => <Groups topic={topic} /> },
];

function Retention({ topic }: { topic: TopicRow }) {
  if (topic.cleanup_policy === "compact") return <>compacted</>;
  const time = topic.retention_ms === null ? "–" : topic.retention_ms < 0 ? "forever" : duration(topic.retention_ms);
  const size = topic.retention_bytes !== null && topic.retention_bytes >= 0 ? `, ${bytes(topic.retention_bytes)} a partition` : "";
  return <span title={`cleanup.policy=${topic.cleanup_policy ?? "?"}; ${time}${size}`}>{topic.cleanup_policy?.includes("compact") ? `${time} ⊕` : time}</span>;
}

function Groups({ topic }: { topic: TopicRow }) {
  const shown = topic.groups.slice(0, 1);
  const rest = topic.group_count - shown.length;
  return (
    <span class="chips">
      {shown.map((group) => (
        <a key={group.group_id} class="chip" href={to(["groups", group.group_id])} title={`${visible(group.group_id)}: ${group.type} group, ${group.state}, lag ${count(group.lag)}`}>
          <span>{visible(group.group_id)}</span> <b>{short(group.lag)}</b>
        </a>
      ))}
      {rest > 0 ? <a href={to(["topics", topic.name, "groups"])}>+{rest}</a> : null}
    </span>
  );
}

export function Topics() {
  const search = query.value.get("search") ?? "";
  const isInternal = query.value.get("internal") === "1";
  const order = orderOf("name");
  const topics = useList<TopicRow>(api(["topics"], { search, internal: isInternal, sort: order.by, order: order.isDescending ? "desc" : "asc" }), EVERY_MS);
  const mayChange = !session.value?.read_only;
  useKeys(mayChange ? [{ keys: "n", does: "create a topic", run: () => openDialog("create") }] : [], [mayChange]);
  return (
    <div class="full">
      <Head title={<>Topics {topics.total === undefined ? null : <span class="soft">{count(topics.total)}</span>}</>}>
        <Search label="Search topics" />
        <CheckField label="Internal" isChecked={isInternal} onChange={(on) => setQuery({ internal: on ? "1" : null })} hint="Also topics that belong to the cluster itself" />
        <Opens dialog="create">Create topic</Opens>
      </Head>
      <ListTable list={topics} what="topics" label="Topics" columns={COLUMNS} href={(topic) => to(["topics", topic.name])} order={order} onOrder={setOrder}>
        {search ? (
          <Empty title={`No topic has “${search}” in its name`}>
            <p>
              <button type="button" onClick={() => setQuery({ search: null })}>
                Show all topics
              </button>
            </p>
          </Empty>
        ) : (
          <Empty title="There are no topics yet">
            <p>
              Create one here, or have a program produce to it: brokers create topics by themselves if <code>auto.create.topics.enable</code> is on.
            </p>
            <MayNotSee what="topics" />
            <p>
              <Opens dialog="create">Create topic</Opens>
            </p>
          </Empty>
        )}
      </ListTable>
      {isDialogOpen("create") ? (
        <CreateTopic
          onCreated={(name, partitions) => {
            topics.reload();
            go(to(["topics", name]), "replace");
            return `Topic ${name} is created${partitions > 0 ? ` with ${plural(partitions, "partition")}` : ""}.`;
          }}
        />
      ) : null}
    </div>
  );
}
