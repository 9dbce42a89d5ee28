import { query } from "../../address";
import { api, call, session } from "../../api";
import { useDraft } from "../../draft";
import { byteRate, count, visible } from "../../format";
import { useList } from "../../load";
import { Dialog, Opens, isDialogOpen, openDialog } from "../../parts/dialog";
import { Search, SelectField, TextField } from "../../parts/fields";
import { ListTable } from "../../parts/list";
import { say } from "../../parts/notices";
import { Empty } from "../../parts/states";
import type { Column } from "../../parts/table";
import type { Quota } from "../../wire";

/** Name, the limited resource, the unit of its field, the value as text. */
const QUOTAS: readonly (readonly [string, string, string, (value: number) => string])[] = [
  ["producer_byte_rate", "Produce", "bytes/s", byteRate],
  ["consumer_byte_rate", "Fetch", "bytes/s", byteRate],
  ["request_percentage", "Request time", "% of one thread", (value) => `${count(value)} %`],
  ["controller_mutation_rate", "Changes of partitions", "per second", (value) => `${count(value)}/s`],
  ["connection_creation_rate", "New connections", "per second", (value) => `${count(value)}/s`],
];

const textOf = (entity: Quota["entity"]): string =>
  Object.entries(entity)
    .map(([type, name]) => `${type} ${name === null ? "default" : visible(name)}`)
    .join(", ");

export function Quotas() {
  const search = query.value.get("search") ?? "";
  const quotas = useList<Quota>(api(["quotas"], { search }), 15_000);
  const columns: Column<Quota>[] = [
    { id: "entity", title: "Of", cell: (quota) => textOf(quota.entity) },
    ...QUOTAS.map(
      ([name, title, , text]): Column<Quota> => ({
        id: name,
        title,
        width: 130,
        isNumber: true,
        isExtra: !["producer_byte_rate", "consumer_byte_rate"].includes(name),
        help: name,
        cell: (quota) => {
          const value = quota.quotas[name];
          return value === null || value === undefined ? <span class="soft">–</span> : text(value);
        },
      }),
    ),
    {
      id: "change",
      title: "",
      width: 76,
      cell: (quota) =>
        session.value?.read_only ? null : (
          <button type="button" class="plain" aria-label={`Change quotas of ${textOf(quota.entity)}`} onClick={() => openDialog("quota", { of: JSON.stringify(quota) })}>
            Change
          </button>
        ),
    },
  ];
  return (
    <>
      <div class="bar">
        <Search label="Search quotas" />
        <span class="spring" />
        <Opens dialog="quota">Set quota</Opens>
      </div>
      <ListTable list={quotas} what="quotas" label="Quotas" columns={columns}>
        <Empty title={search ? "No quota matches" : "There are no quotas"}>
          <p>Clients are not limited. A quota limits a user, a client ID or an IP address, on each broker separately.</p>
        </Empty>
      </ListTable>
      {isDialogOpen("quota") ? <SetQuota key={query.value.get("of") ?? ""} text={query.value.get("of")} reload={quotas.reload} /> : null}
    </>
  );
}

interface Fields {
  kind: "user" | "client-id" | "ip";
  name: string;
  values: Record<string, string>;
}

function parsed(text: string | null): Quota | null {
  try {
    return text === null ? null : (JSON.parse(text) as Quota);
  } catch {
    return null;
  }
}

function SetQuota({ text, reload }: { text: string | null; reload: () => void }) {
  const old = parsed(text);
  const [fields, change, drop] = useDraft<Fields>(`quota ${text ?? ""}`, {
    kind: "user",
    name: "",
    values: Object.fromEntries(Object.entries(old?.quotas ?? {}).map(([name, value]) => [name, value === null ? "" : String(value)])),
  });
  const entity = old?.entity ?? { [fields.kind]: fields.name === "" ? null : fields.name };
  const isIp = "ip" in entity;
  const shown = QUOTAS.filter(([name]) => (name === "connection_creation_rate") === isIp);
  const bad = shown.find(([name]) => fields.values[name] && !(Number(fields.values[name]) >= 0));
  const quotas: Quota["quotas"] = {};
  for (const [name] of shown) {
    const value = fields.values[name] ?? "";
    if (value !== "") quotas[name] = Number(value);
    else if (old && old.quotas[name] !== undefined && old.quotas[name] !== null) quotas[name] = null;
  }
  const run = async () => {
    await call("PATCH", api(["quotas"]), { entity, quotas });
    drop();
    say(`Quotas of ${textOf(entity)} are set.`);
    reload();
  };
  return (
    <Dialog title={old ? `Quotas of ${textOf(entity)}` : "Set quota"} action="Set quotas" run={run} isReady={!bad && Object.keys(quotas).length > 0}>
      {old ? null : (
        <div class="row">
          <SelectField
            label="Of"
            value={fields.kind}
            options={[
              ["user", "user"],
              ["client-id", "client ID"],
              ["ip", "IP address"],
            ]}
            onChange={(kind) => change({ kind })}
          />
          <TextField label="Name" value={fields.name} onChange={(name) => change({ name })} hint="Empty: the default for all without their own quota" />
        </div>
      )}
      {shown.map(([name, title, unit, format]) => {
        const value = fields.values[name] ?? "";
        const before = old?.quotas[name] ?? null;
        const now = before === null ? "no limit" : `${format(before)} a broker`;
        const hint = value === "" ? (before === null ? now : `removes the limit of ${now}`) : Number(value) === before ? now : `${format(Number(value))} a broker${old ? `; now ${now}` : ""}`;
        return (
          <TextField
            key={name}
            label={`${title}, ${unit}`}
            type="number"
            min={0}
            value={value}
            onChange={(next) => change({ values: { ...fields.values, [name]: next } })}
            hint={hint}
            problem={bad?.[0] === name ? "a number, 0 or more" : null}
          />
        );
      })}
      <p class="hint">Takes effect at once, on each broker separately. Clients over the quota are delayed, not refused.</p>
    </Dialog>
  );
}
