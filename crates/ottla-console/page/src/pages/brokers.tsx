/** Brokers: their disks, settings with sources, and reassignments. */
import { useState } from "preact/hooks";

import { query, segments, to } from "../address";
import { api, call } from "../api";
import { bytes, count, plural, visible } from "../format";
import { useGet } from "../load";
import { Dialog, Opens, isDialogOpen } from "../parts/dialog";
import { Head, Tabs } from "../parts/head";
import { say } from "../parts/notices";
import { Settings } from "../parts/settings";
import { Badge, Empty, Facts, Failure, Loading } from "../parts/states";
import { type Column, Table } from "../parts/table";
import type { Broker, Cluster, LogDir } from "../wire";
import { Activity } from "./brokers/activity";
import { Reassignments } from "./brokers/reassignments";
import { Rebalance } from "./brokers/rebalance";
import { BrokerTable, Disk } from "./cluster";

export function Brokers() {
  const [, id = ""] = segments.value;
  if (/^\d+$/.test(id)) return <One key={id} id={id} />;
  return (
    <div class={id === "" || id === "rebalance" ? "" : "full"}>
      <Head title="Brokers" />
      <Tabs
        label="Brokers"
        tabs={[
          { path: ["brokers"], name: "All" },
          { path: ["brokers", "reassignments"], name: "Reassignments" },
          { path: ["brokers", "rebalance"], name: "Rebalance" },
          { path: ["brokers", "settings"], name: "Settings of all brokers" },
        ]}
      />
      {id === "reassignments" ? <Reassignments /> : id === "rebalance" ? <Rebalance /> : id === "settings" ? <Shared /> : <All />}
    </div>
  );
}

function All() {
  const { data, problem, at, reload } = useGet<Cluster>(api(["cluster"]), 5000);
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="brokers" />;
  return (
    <>
      <Failure problem={problem} at={at} retry={reload} />
      <BrokerTable brokers={data.brokers} />
    </>
  );
}

/** The settings that all brokers share. */
function Shared() {
  const { data, problem, reload } = useGet<Cluster>(api(["cluster"]));
  if (!data) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="settings" />;
  const any = data.brokers.find((broker) => !broker.is_fenced);
  return <Settings address={api(["brokers", "default", "settings"])} of="All brokers" known={any ? api(["brokers", any.id, "settings"]) : null} />;
}

function One({ id }: { id: string }) {
  const [, , tab = ""] = segments.value;
  const { data: broker, problem, at, reload } = useGet<Broker>(api(["brokers", id]), 5000);
  const cordoned = isDialogOpen("cordon") ? broker?.dirs.find((dir) => dir.path === query.value.get("name")) : undefined;
  return (
    <div class={tab === "" ? "" : "full"}>
      <Head title={`Broker ${id}`} above={<a href="/brokers">Brokers</a>} />
      <Tabs
        label="Broker"
        tabs={[
          { path: ["brokers", id], name: "Log directories" },
          { path: ["brokers", id, "settings"], name: "Settings" },
          { path: ["brokers", id, "activity"], name: "Activity" },
          { path: ["brokers", id, "apis"], name: "APIs" },
        ]}
      />
      {tab === "settings" ? (
        <Settings address={api(["brokers", id, "settings"])} of={`Broker ${id}`} />
      ) : !broker ? (
        problem ? <Failure problem={problem} retry={reload} /> : <Loading what="the broker" />
      ) : tab === "activity" ? (
        <Activity broker={broker} />
      ) : tab === "apis" ? (
        <Apis broker={broker} />
      ) : (
        <>
          <Failure problem={problem} at={at} retry={reload} />
          <Facts
            facts={[
              ["Address", `${broker.host}:${broker.port}`],
              ["State", broker.is_fenced ? <Badge tone="bad">fenced</Badge> : <Badge tone="good">unfenced</Badge>],
              ["Rack", broker.rack ?? "–"],
              ["Leaders", count(broker.leaders)],
              ["Replicas", count(broker.replicas)],
              ["Data", bytes(broker.bytes)],
            ]}
          />
          {broker.dirs.map((dir) => (
            <Directory key={dir.path} dir={dir} />
          ))}
          {cordoned ? <Cordon broker={broker} dir={cordoned} reload={reload} /> : null}
          {broker.dirs.length === 0 ? (
            <Empty title="The broker reports no log directory">
              <p>It is fenced or does not answer, or you may not describe the cluster.</p>
            </Empty>
          ) : null}
        </>
      )}
    </div>
  );
}

const LARGEST: readonly Column<LogDir["largest"][number]>[] = [
  {
    id: "replica",
    title: "Largest replicas",
    cell: (it) => (
      <>
        <a href={to(["topics", it.topic])}>
            {it.topic}-{it.partition}
          </a> {it.is_future ? <Badge tone="warn">moving here</Badge> : null}
      </>
    ),
  },
  { id: "lag", title: "Offset lag", width: 110, isNumber: true, cell: (it) => count(it.offset_lag) },
  { id: "bytes", title: "Size", width: 100, isNumber: true, cell: (it) => bytes(it.bytes) },
];

function Directory({ dir }: { dir: LogDir }) {
  return (
    <section>
      <h2>
        <code>{visible(dir.path)}</code> {dir.problem ? <Badge tone="bad">{dir.problem}</Badge> : null} {dir.is_cordoned ? <Badge tone="warn">cordoned</Badge> : null}
      </h2>
      <p>
        {plural(dir.replicas, "replica")}, {bytes(dir.bytes)} <Disk total={dir.total_bytes} usable={dir.usable_bytes} />{" "}
        <Opens dialog="cordon" parameters={{ name: dir.path }} label={`${dir.is_cordoned ? "Uncordon" : "Cordon"} ${dir.path}`}>
          {dir.is_cordoned ? "Uncordon" : "Cordon"}
        </Opens>
      </p>
      <Table label={`Replicas in ${dir.path}`} columns={LARGEST} total={dir.largest.length} row={(index) => dir.largest[index]}>
        <p class="soft">No replica is in this directory.</p>
      </Table>
    </section>
  );
}

function Cordon({ broker, dir, reload }: { broker: Broker; dir: LogDir; reload: () => void }) {
  // The text of the dialog must not change while the list is refreshed after the change.
  const [isCordoned] = useState(dir.is_cordoned);
  const others = broker.dirs.filter((it) => it.path !== dir.path && !it.is_cordoned && it.problem === null).length;
  const run = async () => {
    await call("PATCH", api(["brokers", broker.id, "log-dirs"]), { path: dir.path, is_cordoned: !isCordoned });
    say(`${dir.path} of broker ${broker.id} is ${isCordoned ? "uncordoned" : "cordoned"}.`);
    reload();
  };
  if (isCordoned) {
    return (
      <Dialog title="Uncordon log directory" action="Uncordon" run={run}>
        <p>
          New replicas may be placed in <code>{visible(dir.path)}</code> of broker {broker.id} again, beside the {plural(dir.replicas, "replica")} that it has. Nothing is moved now.
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog title="Cordon log directory" action="Cordon" isDangerous={others === 0} run={run}>
      <p>
        <code>{visible(dir.path)}</code> of broker {broker.id} gets no new replicas. Its <b>{plural(dir.replicas, "replica")}</b> with <b>{bytes(dir.bytes)}</b> stay, and are written and read as before; move them to empty it.
      </p>
      {others > 0 ? (
        <p>New replicas on broker {broker.id} go to its {others === 1 ? "other directory" : `${count(others)} other directories`}.</p>
      ) : (
        <p>
          No directory is left for new replicas: broker {broker.id} gets none at all, and topics that need it for their replication factor cannot be created.
        </p>
      )}
    </Dialog>
  );
}

const APIS: readonly Column<Broker["api_versions"][number]>[] = [
  { id: "api", title: "API", cell: (it) => it.api },
  { id: "min", title: "From version", width: 120, isNumber: true, cell: (it) => it.min },
  { id: "max", title: "To version", width: 120, isNumber: true, cell: (it) => it.max },
];

function Apis({ broker }: { broker: Broker }) {
  return <Table label="APIs" isTall columns={APIS} total={broker.api_versions.length} row={(index) => broker.api_versions[index]} />;
}
