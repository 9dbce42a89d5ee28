/** Connections of the broker beside which the console runs, its requests by API, and its slowest requests. */
import { ago, count, time, visible } from "../../format";
import { Empty, Facts } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { Broker, RequestTimes, SlowRequest } from "../../wire";

function ms(value: number): string {
  if (value < 0.005) return "< 0.01 ms";
  if (value >= 1000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  return `${value.toFixed(value < 10 ? 2 : 0)} ms`;
}

const REQUESTS: readonly Column<RequestTimes>[] = [
  { id: "api", title: "Request", cell: (it) => it.api },
  { id: "count", title: "Since the start", width: 150, isNumber: true, isExtra: true, cell: (it) => count(it.count) },
  { id: "p50", title: "p50", width: 90, isNumber: true, cell: (it) => ms(it.p50_ms) },
  { id: "p99", title: "p99", width: 90, isNumber: true, cell: (it) => ms(it.p99_ms) },
  { id: "own", title: "p99 without waiting", width: 190, isNumber: true, isExtra: true, help: "Without the time in which a request waits for data, for other members or for other brokers", cell: (it) => ms(it.own_p99_ms) },
];

const SLOW: readonly Column<SlowRequest>[] = [
  {
    id: "api",
    title: "Request",
    cell: (it) => (
      <span title={it.error ?? undefined}>
        {it.api} v{it.api_version} {it.error ? <span class="soft">{it.error}</span> : null}
      </span>
    ),
  },
  { id: "sent", title: "Answered", width: 130, isNumber: true, isExtra: true, cell: (it) => <span title={time(it.sent)}>{ago(it.sent)}</span> },
  { id: "client", title: "Client ID", width: 130, narrowWidth: 110, cell: (it) => visible(it.client_id) || "–" },
  { id: "principal", title: "Principal", width: 110, isExtra: true, cell: (it) => visible(it.principal) },
  { id: "peer", title: "Address", width: 140, isExtra: true, cell: (it) => it.peer },
  { id: "total", title: "Total", width: 80, isNumber: true, cell: (it) => ms(it.total_ms) },
  { id: "local", title: "Processed", width: 105, isNumber: true, isExtra: true, cell: (it) => ms(it.local_ms) },
  { id: "remote", title: "Waited", width: 95, isNumber: true, isExtra: true, help: "For other brokers, for data or for other members; the rest of the time, the response was sent", cell: (it) => ms(it.remote_ms) },
];

/** What happened in the last minutes, the slowest first. */
export function Activity({ broker }: { broker: Broker }) {
  const { activity } = broker;
  if (!activity) {
    return (
      <Empty title="The activity of this broker is not known">
        <p>
          Kafka's protocol has no connections and no times of requests. The page that <code>ottla server</code> itself serves shows those of its broker, to users that may describe the cluster.
        </p>
      </Empty>
    );
  }
  const requests = [...activity.requests].sort((one, other) => other.p99_ms - one.p99_ms);
  const slow = activity.slow_requests;
  return (
    <>
      <Facts facts={activity.connections.map((it): [string, string] => [`Connections of ${it.listener}`, count(it.open)])} />
      <section>
        <h2>Requests</h2>
        <Table label="Requests" columns={REQUESTS} total={requests.length} row={(index) => requests[index]} />
      </section>
      <section>
        <h2>Slow requests</h2>
        <Table label="Slow requests" columns={SLOW} total={slow.length} row={(index) => slow[index]}>
          <Empty title="No request was slow">
            <p>
              In the last minutes, no request took 10 ms or longer. The time in which Fetch and ShareFetch wait for data, and JoinGroup and SyncGroup for other members, does not count.
            </p>
          </Empty>
        </Table>
      </section>
    </>
  );
}
