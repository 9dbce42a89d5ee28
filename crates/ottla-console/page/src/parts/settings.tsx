/** Settings of a topic, broker or group: what each means, its value and default, where it comes from; and changing one. */
import { useMemo, useState } from "preact/hooks";

import { query, setQuery } from "../address";
import { call, session } from "../api";
import { useEdit } from "../draft";
import { settingHint, visible } from "../format";
import { useGet } from "../load";
import type { Setting } from "../wire";
import { Dialog, isDialogOpen, openDialog } from "./dialog";
import { CheckField, Search, TextField } from "./fields";
import { say } from "./notices";
import { Badge, Empty, Failure, Loading } from "./states";
import { type Column, Table } from "./table";

const SOURCES: Record<string, string> = {
  topic: "this topic",
  broker: "this broker",
  default_broker: "all brokers",
  static_broker: "server.properties",
  default: "default",
  broker_logger: "logger",
  group: "this group",
  client_metrics: "client metrics",
};

/** The value that holds without the one set here. */
export function inherited(setting: Setting): string | null {
  const [, next] = setting.synonyms;
  if (setting.is_default) return setting.value;
  return next?.value ?? null;
}

/** Kafka's documentation contains markup; only its text is shown. */
export function plainText(markup: string | null): string {
  if (!markup) return "";
  return new DOMParser().parseFromString(markup, "text/html").body.textContent.replaceAll(/\s+/g, " ").trim();
}

/**
 * `known` is the address of the settings of one broker. Those that all brokers share list only what is set, so that
 * their names, types and documentation come from there.
 */
export function Settings({ address, of, known = null }: { address: string; of: string; known?: string | null }) {
  const own = useGet<{ items: Setting[] }>(address, 15_000);
  const others = useGet<{ items: Setting[] }>(known);
  const { problem, at, reload } = own;
  const data = useMemo(() => withUnset(own.data, known === null ? [] : others.data?.items), [own.data, others.data, known]);
  const search = (query.value.get("search") ?? "").toLowerCase();
  const isChanged = query.value.get("changed") === "1";
  const items = data?.items;
  const rows = useMemo(() => {
    const shown = (items ?? []).filter((it) => (!isChanged || !it.is_default) && (!search || it.name.includes(search) || (it.documentation ?? "").toLowerCase().includes(search)));
    return shown.sort((a, b) => (a.name < b.name ? -1 : 1));
  }, [items, search, isChanged]);
  if (!items) return problem ? <Failure problem={problem} retry={reload} /> : <Loading what="settings" />;
  const columns: Column<Setting>[] = [
    {
      id: "name",
      title: "Setting",
      cell: (setting) => (
        <button type="button" class="link" onClick={() => openDialog("setting", { name: setting.name })} title={plainText(setting.documentation)}>
          {setting.name}
        </button>
      ),
    },
    { id: "value", title: "Value", width: 260, narrowWidth: 140, cell: (setting) => <Value setting={setting} /> },
    {
      id: "source",
      title: "Source",
      width: 150,
      narrowWidth: 110,
      cell: (setting) => <Badge tone={setting.is_default || setting.source === "default" ? "quiet" : "good"}>{SOURCES[setting.source] ?? setting.source}</Badge>,
    },
    { id: "inherited", title: "Otherwise", width: 150, isExtra: true, help: "The value in effect if it is not set here", cell: (setting) => (setting.is_default ? "" : visible(inherited(setting) ?? (setting.is_sensitive ? "secret" : "the default"))) },
  ];
  const chosen = items.find((setting) => setting.name === query.value.get("name"));
  return (
    <div class="full">
      <div class="bar">
        <Search label="Search settings" />
        <CheckField label="Changed only" isChecked={isChanged} onChange={(on) => setQuery({ changed: on ? "1" : null })} />
      </div>
      <Failure problem={problem} at={at} retry={reload} />
      <Table label="Settings" isTall columns={columns} total={rows.length} row={(index) => rows[index]} onPick={(setting) => openDialog("setting", { name: setting.name })} isPicked={(setting) => setting.name === chosen?.name}>
        <Empty title={isChanged && !search ? `${of} has only defaults` : "No setting matches"}>
          <p>
            <button type="button" onClick={() => setQuery({ changed: null, search: null })}>
              Show all {items.length} settings
            </button>
          </p>
        </Empty>
      </Table>
      {isDialogOpen("setting") && chosen ? <EditSetting key={chosen.name} setting={chosen} address={address} of={of} reload={reload} /> : null}
    </div>
  );
}

/** The settings, and the settings that could be added. */
function withUnset(own: { items: Setting[] } | undefined, known: Setting[] | undefined): { items: Setting[] } | undefined {
  if (!own || !known?.length) return own;
  const names = new Set(own.items.map((it) => it.name));
  const unset = known.filter((it) => !names.has(it.name) && !it.is_read_only).map((it) => ({ ...it, value: null, source: "default", is_default: true, synonyms: [] }));
  const documented = new Map(known.map((it) => [it.name, it]));
  const set = own.items.map((it) => ({ ...it, documentation: it.documentation ?? documented.get(it.name)?.documentation ?? null }));
  return { items: [...set, ...unset] };
}

function Value({ setting }: { setting: Setting }) {
  if (setting.is_sensitive) return <span class="soft">secret</span>;
  if (setting.value === null) return <span class="soft">not set</span>;
  const hint = settingHint(setting.name, setting.value);
  return (
    <span title={setting.value}>
      <code>{visible(setting.value) || "(empty)"}</code> {hint ? <span class="soft">{hint}</span> : null}
    </span>
  );
}

function EditSetting({ setting, address, of, reload }: { setting: Setting; address: string; of: string; reload: () => void }) {
  const [text, setText] = useEdit(`setting ${address} ${setting.name}`, setting.value ?? "");
  // Secrets are no drafts.
  const [secret, setSecret] = useState("");
  const [value, setValue] = setting.is_sensitive ? ([secret, setSecret] as const) : ([text, setText] as const);
  const mayEdit = !setting.is_read_only && !session.value?.read_only;
  const change = (body: object, done: string) => async () => {
    // The cluster checks the value first, so that a mistake is said before anything is changed.
    await call("PATCH", address, { ...body, preview: true });
    await call("PATCH", address, body);
    say(done);
    reload();
  };
  const isSetHere = !setting.is_default && ["topic", "broker", "default_broker", "group"].includes(setting.source);
  const otherwise = inherited(setting);
  const [isReverting, setReverting] = useState(false);
  const hint = settingHint(setting.name, value);
  const run = isReverting
    ? change({ delete: [setting.name] }, `${setting.name} of ${of} is back to its default.`)
    : change({ set: { [setting.name]: value } }, setting.is_sensitive ? `${setting.name} of ${of} is changed.` : `${setting.name} of ${of} is now ${value || "empty"}.`);
  return (
    <Dialog
      title={setting.name}
      {...(mayEdit ? { action: isReverting ? "Back to default" : "Save", run } : {})}
      isReady={isReverting || value !== (setting.value ?? "")}
    >
      <p class="documentation">{plainText(setting.documentation) || "The cluster has no documentation of this setting."}</p>
      <dl class="facts">
        <div>
          <dt>Type</dt>
          <dd>{setting.type}</dd>
        </div>
        <div>
          <dt>Now</dt>
          <dd>
            <Value setting={setting} /> <span class="soft">from {SOURCES[setting.source] ?? setting.source}</span>
          </dd>
        </div>
        {setting.is_default ? null : (
          <div>
            <dt>Otherwise</dt>
            <dd>
              {otherwise === null ? <span class="soft">{setting.is_sensitive ? "secret" : "the default"}</span> : <code>{visible(otherwise)}</code>} <span class="soft">{settingHint(setting.name, otherwise)}</span>
            </dd>
          </div>
        )}
        {setting.synonyms.slice(1).map((synonym) => (
          <div key={synonym.source + synonym.name}>
            <dt>{SOURCES[synonym.source] ?? synonym.source}</dt>
            <dd>
              <code>
                {synonym.name}={visible(synonym.value ?? "–")}
              </code>
            </dd>
          </div>
        ))}
      </dl>
      {mayEdit ? (
        <>
          {isReverting ? (
            <p>
              Will change from <code>{visible(setting.value ?? "–")}</code> to <code>{visible(otherwise ?? "its default")}</code>.
            </p>
          ) : setting.type === "boolean" ? (
            <label class="field">
              <span>New value</span>
              <select value={value} onChange={(event) => setValue(event.currentTarget.value)}>
                <option value="true">true</option>
                <option value="false">false</option>
              </select>
            </label>
          ) : (
            <TextField label="New value" value={value} onChange={setValue} isFocused hint={hint || undefined} type={setting.is_sensitive ? "password" : "text"} />
          )}
          {isSetHere ? <CheckField label="Back to the default" isChecked={isReverting} onChange={setReverting} /> : null}
        </>
      ) : (
        <p class="hint">{setting.is_read_only ? "This setting is read at start: change it in server.properties and restart the broker." : "The console runs in read-only mode."}</p>
      )}
    </Dialog>
  );
}
