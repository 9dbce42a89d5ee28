/** Transactional IDs: open transactions first, their age and the offsets that they hold back; aborting one. */
import { query, setQuery, to } from "../address";
import { api, call, session } from "../api";
import { count, duration, plural, time, visible } from "../format";
import { useGet, useList } from "../load";
import { Dialog, isDialogOpen, openDialog } from "../parts/dialog";
import { Search } from "../parts/fields";
import { Head } from "../parts/head";
import { ListTable } from "../parts/list";
import { say } from "../parts/notices";
import { Badge, Empty, Failure, Loading, MayNotSee, type Tone } from "../parts/states";
import type { Column } from "../parts/table";
import type { Transaction } from "../wire";
import { orderOf, setOrder } from "./topics";

const isOpen = (it: Transaction): boolean => ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"].includes(it.state);
const openMs = (it: Transaction): number | null => (isOpen(it) && it.started !== null && it.started > 0 ? Date.now() - it.started : null);

function tone(it: Transaction): Tone {
  const ms = openMs(it);
  if (!isOpen(it)) return "quiet";
  return ms !== null && it.timeout_ms !== null && ms > it.timeout_ms ? "bad" : "warn";
}

export function Transactions() {
  const search = query.value.get("search") ?? "";
  const state = query.value.get("state") ?? "";
  const order = orderOf("state");
  const isOrdered = query.value.get("sort") !== null;
  // Without an order of the user's, the server puts open transactions first.
  const transactions = useList<Transaction>(api(["transactions"], { search, state, ...(isOrdered ? { sort: order.by, order: order.isDescending ? "desc" : "asc" } : {}) }), 3000);
  const columns: Column<Transaction>[] = [
    {
      id: "transactional_id",
      title: "Transactional ID",
      isSortable: true,
      cell: (it) => (
        <button type="button" class="link" onClick={() => openDialog("transaction", { name: it.transactional_id })}>
          {visible(it.transactional_id)}
        </button>
      ),
    },
    { id: "state", title: "State", width: 150, isSortable: true, cell: (it) => <Badge tone={tone(it)}>{it.state}</Badge> },
    { id: "started", title: "Open for", width: 120, isNumber: true, cell: (it) => duration(openMs(it)) },
    { id: "timeout", title: "Timeout", width: 100, isNumber: true, isExtra: true, cell: (it) => duration(it.timeout_ms) },
    { id: "partitions", title: "Partitions", width: 104, isNumber: true, isExtra: true, cell: (it) => count(partitionsOf(it)) },
    { id: "producer", title: "Producer", width: 120, isNumber: true, isExtra: true, cell: (it) => `${it.producer_id}${it.producer_epoch === null ? "" : ` e${it.producer_epoch}`}`, help: "Producer ID and epoch" },
    {
      id: "abort",
      title: "",
      width: 76,
      cell: (it) =>
        it.state === "Ongoing" && !session.value?.read_only ? (
          <button type="button" class="danger" onClick={() => openDialog("abort", { name: it.transactional_id })}>
            Abort
          </button>
        ) : null,
    },
  ];
  const name = query.value.get("name");
  return (
    <div class="full">
      <Head title={<>Transactions {transactions.total === undefined ? null : <span class="soft">{count(transactions.total)}</span>}</>}>
        <Search label="Search transactional IDs" />
        <select aria-label="State" value={state} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
          <option value="">all states</option>
          {["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "Dead"].map((it) => (
            <option key={it} value={it}>
              {it}
            </option>
          ))}
        </select>
      </Head>
      <ListTable
        list={transactions}
        what="transactions"
        label="Transactions"
        columns={columns}
        onPick={(it) => openDialog("transaction", { name: it.transactional_id })}
        order={isOrdered ? order : undefined}
        onOrder={setOrder}
      >
        <Empty title={search || state ? "No transactional ID matches" : "There are no transactions"}>
          {search || state ? (
            <p>
              <button type="button" onClick={() => setQuery({ search: null, state: null })}>
                Show all
              </button>
            </p>
          ) : (
            <>
              <p>
                They appear when a producer with a <code>transactional.id</code> starts. Transactions that no coordinator knows are listed with the <i>Producers</i> of their topic.
              </p>
              <MayNotSee what="transactions" />
            </>
          )}
        </Empty>
      </ListTable>
      {name !== null && (isDialogOpen("transaction") || isDialogOpen("abort")) ? <One key={name + query.value.get("do")} id={name} isAborting={isDialogOpen("abort")} reload={transactions.reload} /> : null}
    </div>
  );
}

const partitionsOf = (it: Transaction): number | null => it.topics?.reduce((sum, topic) => sum + (topic.partitions?.length ?? 0), 0) ?? null;

function One({ id, isAborting, reload }: { id: string; isAborting: boolean; reload: () => void }) {
  const { data, problem } = useGet<Transaction>(api(["transactions", id]), 3000);
  const run = async () => {
    await call("POST", api(["transactions", id, "abort"]));
    say(`The transaction of ${id} is aborted.`);
    reload();
  };
  return (
    <Dialog title={isAborting ? `Abort the transaction of ${id}` : id} {...(isAborting ? { action: "Abort transaction", isDangerous: true, run, isReady: data?.state === "Ongoing" } : {})}>
      <Failure problem={problem} />
      {data ? (
        <>
          <dl class="facts">
            <div>
              <dt>State</dt>
              <dd>
                <Badge tone={tone(data)}>{data.state}</Badge>
              </dd>
            </div>
            <div>
              <dt>Open for</dt>
              <dd>
                {duration(openMs(data))} {openMs(data) === null ? null : <span class="soft">since {time(data.started)}</span>}
              </dd>
            </div>
            <div>
              <dt>Timeout</dt>
              <dd>{duration(data.timeout_ms)}</dd>
            </div>
            <div>
              <dt>Producer</dt>
              <dd>
                {data.producer_id} epoch {count(data.producer_epoch)}
              </dd>
            </div>
            <div>
              <dt>Coordinator</dt>
              <dd>
                <a href={to(["brokers", String(data.coordinator)])}>broker {data.coordinator}</a>
              </dd>
            </div>
          </dl>
          {isAborting ? (
            data.state === "Ongoing" ? (
              <p>
                Aborts what it wrote to <b>{plural(partitionsOf(data), "partition")}</b>, and fences its producer: a program that still uses this producer gets an error and has to start anew. Consumers with isolation.level=read_committed can then read on.
              </p>
            ) : (
              <p>It is not open any more: its state is {data.state}. There is nothing to abort.</p>
            )
          ) : null}
          <ul>
            {(data.topics ?? []).map((topic) => (
              <li key={topic.topic}>
                <a href={to(["topics", topic.topic, "producers"])}>{topic.topic}</a> <span class="soft">{topic.partitions?.join(", ") ?? "all"}</span>
              </li>
            ))}
          </ul>
        </>
      ) : problem ? null : (
        <Loading what="the transaction" />
      )}
    </Dialog>
  );
}
