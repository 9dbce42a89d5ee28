/** The cluster at a glance: its health in one sentence, problems first, then numbers over time. */
import { api } from "../api";
import { to } from "../address";
import { ago, bytes, count, plural, rate, short } from "../format";
import { useGet } from "../load";
import { Head } from "../parts/head";
import { OverTime } from "../parts/over_time";
import { Badge, Empty, Failure, Loading, MayNotSee, Share } from "../parts/states";
import { type Column, Table } from "../parts/table";
import type { Attention, BrokerRow, Cluster as ClusterData, QuorumNode } from "../wire";

const EVERY_MS = 5000;

export function Cluster() {
  const { data, problem, at, reload } = useGet<ClusterData>(api(["cluster"]), EVERY_MS);
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="the cluster" />;
  return (
    <>
      <Head title="Cluster" above={data.cluster_id ? <code>{data.cluster_id}</code> : null} />
      <Failure problem={problem} at={at} retry={reload} />
      <p class={`health ${data.health}`}>
        <span class="dot" aria-hidden="true" /> {data.sentence}
      </p>
      {data.totals.topics === 0 ? <MayNotSee what="topics" /> : null}
      <NeedsAttention items={data.attention} total={data.attention_total} />
      <Totals cluster={data} />
      <OverTime of="cluster" />
      <section>
        <h2>Brokers</h2>
        <BrokerTable brokers={data.brokers} />
      </section>
      {data.quorum ? <Quorum quorum={data.quorum} /> : null}
      <section>
        <h2>Features</h2>
        <p class="features">
          {data.features.map((feature) => (
            <span key={feature.name}>
              <code>{feature.name}</code> {feature.level}
            </span>
          ))}
        </p>
      </section>
    </>
  );
}

function NeedsAttention({ items, total }: { items: Attention[]; total: number }) {
  if (items.length === 0) return null;
  return (
    <section class="attention">
      <h2>Needs attention</h2>
      <ol>
        {items.map((item, index) => (
          <li key={index} class={item.severity}>
            <Badge tone={item.severity === "critical" ? "bad" : "warn"}>{item.severity}</Badge>
            <a href={addressOf(item.link)}>{item.text}</a>
          </li>
        ))}
      </ol>
      {total > items.length ? <p class="soft">and {count(total - items.length)} more</p> : null}
    </section>
  );
}

function addressOf(link: Attention["link"]): string {
  switch (link.kind) {
    case "topic":
      return to(["topics", link.name]);
    case "group":
      return to(["groups", link.name]);
    case "broker":
      return to(["brokers", link.name]);
    case "transaction":
      return to(["transactions"], { search: link.name });
    case "cluster":
      return "/";
  }
}

function Totals({ cluster }: { cluster: ClusterData }) {
  const { totals } = cluster;
  return (
    <dl class="tiles">
      <Tile name="Topics" value={count(totals.topics)} note={plural(totals.partitions, "partition")} />
      <Tile
        name="Under-replicated"
        value={count(totals.under_replicated)}
        note={`${count(totals.offline)} offline, ${count(totals.under_min_isr)} under min ISR`}
        tone={totals.offline + totals.under_min_isr > 0 ? "bad" : totals.under_replicated > 0 ? "warn" : undefined}
      />
      <Tile name="Records in" value={rate(totals.records_per_second)} note={`${short(totals.records)} stored`} />
      <Tile name="Data" value={bytes(totals.bytes)} note="all replicas" />
      <Tile name="Groups" value={count(totals.groups)} note={`lag ${short(totals.lag)}`} />
    </dl>
  );
}

function Tile({ name, value, note, tone }: { name: string; value: string; note: string; tone?: "bad" | "warn" | undefined }) {
  return (
    <div class={tone}>
      <dt>{name}</dt>
      <dd>
        <b>{value}</b> <span class="soft">{note}</span>
      </dd>
    </div>
  );
}

export function BrokerTable({ brokers }: { brokers: BrokerRow[] }) {
  const columns: Column<BrokerRow>[] = [
    {
      id: "broker",
      title: "Broker",
      cell: (broker) => (
        <>
          <a href={to(["brokers", String(broker.id)])}>
            {broker.id} {broker.host}:{broker.port}
          </a>{" "}
          {broker.is_fenced ? <Badge tone="bad">fenced</Badge> : null}
          {broker.offline_log_dirs ? <Badge tone="bad">{plural(broker.offline_log_dirs, "log directory", "log directories")} offline</Badge> : null}
        </>
      ),
    },
    { id: "rack", title: "Rack", width: 100, isExtra: true, cell: (broker) => broker.rack ?? "–" },
    { id: "leaders", title: "Leaders", width: 90, isNumber: true, isExtra: true, cell: (broker) => count(broker.leaders) },
    { id: "replicas", title: "Replicas", width: 90, isNumber: true, cell: (broker) => count(broker.replicas) },
    { id: "bytes", title: "Data", width: 90, isNumber: true, cell: (broker) => bytes(broker.bytes) },
    { id: "disk", title: "Disk used", width: 210, isExtra: true, cell: (broker) => <Disk total={broker.total_bytes} usable={broker.usable_bytes} /> },
  ];
  return (
    <Table label="Brokers" columns={columns} total={brokers.length} row={(index) => brokers[index]} href={(broker) => to(["brokers", String(broker.id)])}>
      <Empty title="No broker is registered">
        <p>Start a broker with this cluster's controllers in <code>controller.quorum.bootstrap.servers</code>.</p>
      </Empty>
    </Table>
  );
}

export function Disk({ total, usable }: { total: number | null; usable: number | null }) {
  if (total === null || usable === null || total <= 0) return <span class="soft">–</span>;
  return <Share part={(total - usable) / total} label={`${bytes(usable)} free`} />;
}

function Quorum({ quorum }: { quorum: NonNullable<ClusterData["quorum"]> }) {
  const nodes = [...quorum.voters.map((node) => ({ node, role: "voter" })), ...quorum.observers.map((node) => ({ node, role: "observer" }))];
  const columns: Column<{ node: QuorumNode; role: string }>[] = [
    {
      id: "node",
      title: "Node",
      cell: ({ node, role }) => (
        <>
          {node.id} <span class="soft">{role}</span> {node.id === quorum.leader ? <Badge tone="good">leader</Badge> : null}
        </>
      ),
    },
    { id: "end", title: "Log end offset", width: 130, isNumber: true, cell: ({ node }) => count(node.log_end_offset) },
    { id: "lag", title: "Lag", width: 80, isNumber: true, cell: ({ node }) => count(node.lag) },
    { id: "caught", title: "Caught up", width: 140, isNumber: true, isExtra: true, cell: ({ node }) => (node.id === quorum.leader ? "–" : ago(node.last_caught_up)) },
  ];
  return (
    <section>
      <h2>
        Controller quorum <span class="soft">epoch {count(quorum.leader_epoch)}, high watermark {count(quorum.high_watermark)}</span>
      </h2>
      <Table label="Controller quorum" columns={columns} total={nodes.length} row={(index) => nodes[index]} />
    </section>
  );
}
