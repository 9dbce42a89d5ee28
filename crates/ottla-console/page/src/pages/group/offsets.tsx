/** Resetting the offsets of a group, with a preview of every partition; setting the offset of one. */
import { useEffect, useState } from "preact/hooks";

import { query } from "../../address";
import { api, call, textOf } from "../../api";
import { useDraft, useEdit } from "../../draft";
import { count, plural, time, visible } from "../../format";
import { Dialog } from "../../parts/dialog";
import { SelectField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { type Column, Table } from "../../parts/table";
import type { Group, OffsetChange, OffsetReset } from "../../wire";

type To = Exclude<OffsetReset["to"], "offsets">;

const WAYS: readonly (readonly [To, string])[] = [
  ["earliest", "the earliest offset"],
  ["latest", "the latest offset"],
  ["timestamp", "a time"],
  ["duration", "some time back"],
  ["shift", "forwards or backwards by records"],
  ["offset", "one offset, in every partition"],
  ["current", "the current offset (commits it anew)"],
];

const COLUMNS: readonly Column<OffsetChange>[] = [
  { id: "partition", title: "Partition", cell: (it) => `${it.topic}-${it.partition}` },
  { id: "old", title: "Now", width: 120, narrowWidth: 76, isNumber: true, cell: (it) => count(it.old) },
  { id: "new", title: "New", width: 120, narrowWidth: 76, isNumber: true, cell: (it) => (it.problem ? <span class="bad" title={it.problem}>{it.problem}</span> : count(it.new)) },
  { id: "change", title: "Change", width: 130, narrowWidth: 80, isNumber: true, cell: (it) => signed(it) },
  { id: "lag", title: "Lag after", width: 100, isNumber: true, isExtra: true, cell: (it) => count(it.lag) },
];

function signed(it: OffsetChange): string {
  if (it.old === null || it.new === null) return "–";
  const by = it.new - it.old;
  return by > 0 ? `+${count(by)}` : by < 0 ? `−${count(-by)}` : "0";
}

/** The total effect of the changes. */
function Meaning({ changes }: { changes: readonly OffsetChange[] }) {
  let again = 0;
  let skipped = 0;
  for (const it of changes) {
    if (it.old === null || it.new === null) continue;
    if (it.new < it.old) again += it.old - it.new;
    else skipped += it.new - it.old;
  }
  const moved = changes.filter((it) => it.new !== null && it.new !== it.old).length;
  const bad = changes.filter((it) => it.problem).length;
  return (
    <p>
      Changes <b>{plural(moved, "partition")}</b> of {count(changes.length)}: <b>{plural(again, "record")}</b> will be read again, <b>{plural(skipped, "record")}</b> will be skipped.
      {bad > 0 ? <span class="bad"> {plural(bad, "partition")} cannot be changed.</span> : null}
    </p>
  );
}

interface Preview {
  changes: OffsetChange[] | null;
  problem: string | null;
  /** Asks once more: the group or its topics are no longer as they were. */
  again: () => void;
}

/** Asks for a preview whenever the wanted change is another. */
function usePreview(address: string, body: OffsetReset | null): Preview {
  const [round, setRound] = useState(0);
  const again = () => setRound((before) => before + 1);
  const wanted = body === null ? null : JSON.stringify({ ...body, preview: true });
  const [state, setState] = useState<{ wanted: string | null; round: number; changes: OffsetChange[] | null; problem: string | null }>({ wanted: null, round, changes: null, problem: null });
  useEffect(() => {
    if (wanted === null) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      call<{ items: OffsetChange[] }>("POST", address, JSON.parse(wanted), abort.signal).then(
        (answer) => setState({ wanted, round, changes: answer.items, problem: null }),
        (error: unknown) => abort.signal.aborted || setState({ wanted, round, changes: null, problem: textOf(error) }),
      );
    }, 200);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [address, wanted, round]);
  return wanted === null || state.wanted !== wanted || state.round !== round ? { changes: null, problem: null, again } : { ...state, again };
}

/** Why the offsets of a group with members cannot be changed. */
const refusal = (group: Group): string => `The group has ${plural(group.member_list.length, "member")}: the cluster refuses to change its offsets until its consumers are stopped. The preview works.`;

/** Applies the changes of the preview, and nothing else. */
async function apply(address: string, preview: Preview): Promise<OffsetChange[]> {
  const changes = (preview.changes ?? []).filter((it) => it.new !== null).map(({ topic, partition, old, new: to }) => ({ topic, partition, old, new: to }));
  try {
    const { items } = await call<{ items: OffsetChange[] }>("POST", address, { changes });
    const bad = items.find((it) => it.problem);
    if (bad) throw new Error(`${bad.topic}-${bad.partition}: ${bad.problem}`);
    return items;
  } catch (error) {
    preview.again();
    throw error;
  }
}

/** The value of a way to reset offsets; null for a way without one, undefined if its field holds none. */
function valueOf(fields: { to: To; offset: string; shift: string; hours: string; at: string }): number | null | undefined {
  const whole = (text: string, least: number) => (text.trim() !== "" && Number.isSafeInteger(Number(text)) && Number(text) >= least ? Number(text) : undefined);
  switch (fields.to) {
    case "offset":
      return whole(fields.offset, 0);
    case "shift":
      return whole(fields.shift, Number.MIN_SAFE_INTEGER);
    case "duration":
      return fields.hours.trim() !== "" && Number(fields.hours) >= 0 ? whole(String(Math.round(Number(fields.hours) * 3_600_000)), 0) : undefined;
    case "timestamp":
      return whole(String(new Date(fields.at).getTime()), 0);
    default:
      return null;
  }
}

export function ResetOffsets({ group, reload }: { group: Group; reload: () => void }) {
  const address = api(["groups", group.group_id, "offsets"]);
  const topics = [...new Set(group.partition_list.map((it) => it.topic))].sort();
  const [fields, change, drop] = useDraft(`reset ${group.group_id}`, { to: "earliest" as To, topic: "", offset: "0", shift: "-100", hours: "1", at: time(Date.now() - 3_600_000).slice(0, 16).replace(" ", "T") });
  const value = valueOf(fields);
  const wrong = (text: string) => (value === undefined ? text : null);
  const body: OffsetReset | null = value === undefined ? null : { to: fields.to, ...(value === null ? {} : { value }), topics: fields.topic ? [{ topic: fields.topic }] : null };
  const preview = usePreview(address, body);
  const { changes, problem } = preview;
  const isActive = group.member_list.length > 0;
  const run = async () => {
    const done = await apply(address, preview);
    drop();
    say(`Offsets of ${group.group_id} are reset in ${plural(done.length, "partition")}.`);
    reload();
  };
  const moved = changes?.filter((it) => it.new !== null && it.new !== it.old).length ?? 0;
  return (
    <Dialog title={`Reset offsets of ${group.group_id}`} action={moved > 0 ? `Reset ${plural(moved, "partition")}` : "Reset"} isDangerous isWide run={run} isReady={!isActive && changes !== null && (moved > 0 || fields.to === "current")}>
      {isActive ? <p class="failure">{refusal(group)}</p> : null}
      {group.type === "streams" ? (
        <p>
          Only the input topics of the application are reset. Its internal topics, and so its state, stay as they are; <code>ottla streams-groups --reset-offsets</code> can delete them as well.
        </p>
      ) : null}
      <div class="row">
        <SelectField label="To" value={fields.to} options={WAYS} onChange={(to) => change({ to })} />
        {fields.to === "offset" ? <TextField label="Offset" type="number" value={fields.offset} onChange={(offset) => change({ offset })} problem={wrong("a whole number, 0 or more")} /> : null}
        {fields.to === "shift" ? <TextField label="Records" type="number" value={fields.shift} onChange={(shift) => change({ shift })} hint="Negative goes back" problem={wrong("a whole number; negative goes back")} /> : null}
        {fields.to === "duration" ? <TextField label="Hours back" type="number" value={fields.hours} onChange={(hours) => change({ hours })} problem={wrong("a number, 0 or more")} /> : null}
        {fields.to === "timestamp" ? <TextField label="Time" type="datetime-local" value={fields.at} onChange={(at) => change({ at })} problem={wrong("a date and a time")} /> : null}
        <SelectField label="Of" value={fields.topic} options={[["", topics.length === 1 ? topics[0]! : `all ${topics.length} topics`], ...(topics.length > 1 ? topics.map((name) => [name, name] as const) : [])]} onChange={(topic) => change({ topic })} />
      </div>
      {problem ? (
        <p class="failure" role="alert">
          {problem}
        </p>
      ) : null}
      {changes ? (
        <>
          <Meaning changes={changes} />
          <Table label="Preview" columns={COLUMNS} total={changes.length} row={(index) => changes[index]} tone={(it) => (it.problem ? "bad" : undefined)}>
            <p>The group has no committed offset to reset.</p>
          </Table>
        </>
      ) : problem || value === undefined ? null : (
        <p aria-busy="true">Looking up offsets …</p>
      )}
    </Dialog>
  );
}

export function SetOffset({ group, reload }: { group: Group; reload: () => void }) {
  const topic = query.value.get("topic") ?? "";
  const partition = Number(query.value.get("partition"));
  const now = group.partition_list.find((it) => it.topic === topic && it.partition === partition);
  const [text, setText] = useEdit(`offset ${group.group_id} ${topic}-${partition}`, String(now?.committed_offset ?? now?.log_start_offset ?? 0));
  const offset = Number(text);
  const isValid = text !== "" && Number.isSafeInteger(offset) && offset >= 0;
  const address = api(["groups", group.group_id, "offsets"]);
  const body: OffsetReset | null = isValid ? { to: "offsets", offsets: [{ topic, partition, offset }] } : null;
  const preview = usePreview(address, body);
  const { changes, problem } = preview;
  const [change] = changes ?? [];
  const run = async () => {
    const [done] = await apply(address, preview);
    say(`${group.group_id} reads ${topic}-${partition} from offset ${done?.new ?? offset} now.`);
    reload();
  };
  return (
    <Dialog title={`Set the offset of ${topic}-${partition}`} action="Set offset" isDangerous run={run} isReady={group.member_list.length === 0 && change !== undefined && !change.problem && change.new !== change.old}>
      <p>
        Group {visible(group.group_id)}; the log holds offsets {count(now?.log_start_offset)} to {count(now?.log_end_offset)} (exclusive), committed is {count(now?.committed_offset)}.
      </p>
      {group.member_list.length > 0 ? <p class="failure">{refusal(group)}</p> : null}
      <TextField label="Offset of the next record to read" type="number" min={0} value={text} onChange={setText} isFocused problem={isValid ? (problem ?? change?.problem ?? null) : "a whole number, 0 or more"} />
      <div class="actions">
        <button type="button" onClick={() => setText(String(now?.log_start_offset ?? 0))}>
          Start
        </button>
        <button type="button" onClick={() => setText(String((now?.committed_offset ?? now?.log_start_offset ?? 0) + 1))} title="Skips one record, for one that cannot be processed">
          Skip one
        </button>
        <button type="button" onClick={() => setText(String(now?.log_end_offset ?? 0))}>
          End
        </button>
      </div>
      {change && !change.problem ? <Meaning changes={[change]} /> : <p class="soft">{!isValid || problem || change?.problem ? "Nothing will be changed." : "Looking up …"}</p>}
    </Dialog>
  );
}
