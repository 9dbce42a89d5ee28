/** Groups of all types: classic, consumer, share, streams. */
import { query, setQuery, to } from "../address";
import { api } from "../api";
import { count, short, visible } from "../format";
import { useList } from "../load";
import { Search } from "../parts/fields";
import { Head } from "../parts/head";
import { ListTable } from "../parts/list";
import { Badge, Empty, MayNotSee, type Tone } from "../parts/states";
import type { Column } from "../parts/table";
import type { GroupRow } from "../wire";
import { orderOf, setOrder } from "./topics";

export function stateTone(state: string): Tone {
  switch (state.toLowerCase().replaceAll(/[_ ]/g, "")) {
    case "stable":
      return "good";
    case "dead":
    case "notready":
    case "unknown":
      return "bad";
    case "empty":
      return "quiet";
    default:
      return "warn";
  }
}

const COLUMNS: readonly Column<GroupRow>[] = [
  { id: "group_id", title: "Group", isSortable: true, cell: (group) => <a href={to(["groups", group.group_id])}>{visible(group.group_id) || "(empty name)"}</a> },
  { id: "type", title: "Type", width: 100, isSortable: true, cell: (group) => group.type, isExtra: true },
  { id: "state", title: "State", width: 130, isSortable: true, cell: (group) => <Badge tone={stateTone(group.state)}>{group.state}</Badge> },
  { id: "lag", title: "Lag", width: 85, isNumber: true, isSortable: true, cell: (group) => <span title={count(group.lag)}>{short(group.lag)}</span> },
  {
    id: "topics",
    title: "Topics",
    width: 280,
    isExtra: true,
    cell: (group) => (
      <span class="chips">
        {(group.topics ?? []).slice(0, 3).map((topic) => (
          <a key={topic} class="chip" href={to(["topics", topic])}>
            <span>{topic}</span>
          </a>
        ))}
        {(group.topics?.length ?? 0) > 3 ? <span class="soft">+{group.topics!.length - 3}</span> : null}
      </span>
    ),
  },
];

export function Groups() {
  const search = query.value.get("search") ?? "";
  const type = query.value.get("type") ?? "";
  const state = query.value.get("state") ?? "";
  const order = orderOf("lag", true);
  const groups = useList<GroupRow>(api(["groups"], { search, type, state, sort: order.by, order: order.isDescending ? "desc" : "asc" }), 5000);
  const isFiltered = Boolean(search || type || state);
  return (
    <div class="full">
      <Head title={<>Groups {groups.total === undefined ? null : <span class="soft">{count(groups.total)}</span>}</>}>
        <Search label="Search groups" />
        <select aria-label="Type" value={type} onChange={(event) => setQuery({ type: event.currentTarget.value })}>
          <option value="">all types</option>
          <option value="consumer">consumer</option>
          <option value="classic">classic</option>
          <option value="share">share</option>
          <option value="streams">streams</option>
        </select>
        <select aria-label="State" value={state} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
          <option value="">all states</option>
          {["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead"].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </Head>
      <ListTable list={groups} what="groups" label="Groups" columns={COLUMNS} href={(group) => to(["groups", group.group_id])} order={order} onOrder={setOrder}>
        {isFiltered ? (
          <Empty title="No group matches">
            <p>
              <button type="button" onClick={() => setQuery({ search: null, type: null, state: null })}>
                Show all groups
              </button>
            </p>
          </Empty>
        ) : (
          <Empty title="There are no groups yet">
            <p>
              A group appears when a consumer with a <code>group.id</code> subscribes or commits an offset.
            </p>
            <MayNotSee what="groups" />
          </Empty>
        )}
      </ListTable>
    </div>
  );
}
