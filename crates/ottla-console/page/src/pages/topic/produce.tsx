import { useState } from "preact/hooks";

import { go, to } from "../../address";
import { api, call, textOf } from "../../api";
import { useDraft } from "../../draft";
import { bytes, count, plural, time } from "../../format";
import { Dialog } from "../../parts/dialog";
import { CheckField, SelectField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import type { Data, KafkaRecord } from "../../wire";

interface Fields {
  key: string;
  hasKey: boolean;
  value: string;
  isTombstone: boolean;
  /** One record a line. */
  isMany: boolean;
  encoding: "text" | "hex" | "base64";
  partition: string;
  headers: [string, string][];
}

interface Produced {
  partition: number;
  offset: number;
  problem: string | null;
}

interface Lines {
  name: string;
  bytes: number;
  values: string[];
}

/** Records of one request, and their characters. */
const AT_ONCE = 1000;
const AT_ONCE_CHARACTERS = 2 << 20;
const LARGEST_FILE = 256 << 20;

const NEW: Fields = { key: "", hasKey: false, value: "", isTombstone: false, isMany: false, encoding: "text", partition: "", headers: [] };

/** The fields of an existing record. Bytes that are not text are shown as hexadecimal digits. */
function like(record: KafkaRecord): Fields {
  const isHex = [record.key, record.value].some((data) => data?.format === "hex");
  const text = (data: Data | null) => data?.text ?? "";
  return {
    key: text(record.key),
    hasKey: record.key !== null,
    value: text(record.value),
    isTombstone: record.value === null,
    isMany: false,
    encoding: isHex ? "hex" : "text",
    partition: "",
    headers: record.headers.map((header) => [header.key, header.value?.text ?? ""]),
  };
}

/** Parts that fit into one request each. */
function* parts<T extends string | null>(values: readonly T[]): Generator<T[]> {
  let [part, characters]: [T[], number] = [[], 0];
  for (const value of values) {
    const length = value?.length ?? 0;
    if (part.length === AT_ONCE || (part.length > 0 && characters + length > AT_ONCE_CHARACTERS)) {
      yield part;
      [part, characters] = [[], 0];
    }
    part.push(value);
    characters += length;
  }
  if (part.length > 0) yield part;
}

const linesOf = (text: string) => text.split(/\r?\n/).filter(Boolean);

/** Why a record cannot be edited: its bytes could not be given back as they are. */
function unfitness(record: KafkaRecord): string | null {
  const parts = [record.key, record.value].filter((data) => data !== null);
  const send = "Choose it in the list and send it again instead: that keeps every byte.";
  if (parts.some((data) => data.cut)) return `The record is longer than its loaded part. ${send}`;
  if (parts.some((data) => data.schema && data.format !== "hex")) return "The record is shown as its schema decodes it. View the records as hex, then edit.";
  if (parts.some((data) => data.problem)) return `The view differs from the bytes of the record. ${send}`;
  if (new Set(parts.map((data) => data.format === "hex")).size > 1) return "Key and value are of different kinds, text and bytes. View the records as hex, then edit.";
  if (record.headers.some((header) => header.value === null || header.value.format === "hex" || header.value.cut)) return `A header is null, or is not text. ${send}`;
  return null;
}

export function Produce({ topic, partitions, like: old }: { topic: string; partitions: number | undefined; like?: KafkaRecord }) {
  const [fields, change, drop] = useDraft(`produce ${topic}${old ? ` ${old.partition}:${old.offset}` : ""}`, old ? like(old) : NEW);
  const [file, setFile] = useState<Lines | null>(null);
  const [fileProblem, setFileProblem] = useState<string | null>(null);
  const [produced, setProduced] = useState(0);
  const { isMany } = fields;
  const noPartition = partitions !== undefined && fields.partition !== "" && !(Number(fields.partition) < partitions) ? `the topic has the partitions 0 to ${partitions - 1}` : null;
  const unfit = old ? unfitness(old) : null;
  const run = async () => {
    const one = (value: string | null) => ({
      key: fields.hasKey ? fields.key : null,
      value,
      encoding: fields.encoding,
      partition: fields.partition === "" ? null : Number(fields.partition),
      headers: fields.headers.filter(([key]) => key).map(([key, text]) => ({ key, value: text })),
    });
    const typed = () => (isMany ? linesOf(fields.value) : [fields.isTombstone ? null : fields.value]);
    const values = isMany && file ? file.values : typed();
    let done = 0;
    let first: Produced | undefined;
    for (const part of parts(values)) {
      const before = done > 0 ? `; ${plural(done, "record")} had been produced before that` : "";
      let answer: { items: Produced[] };
      try {
        answer = await call("POST", api(["topics", topic, "records"]), { records: part.map(one) });
      } catch (error) {
        throw new Error(textOf(error) + before);
      }
      const bad = answer.items.find((item) => item.problem);
      if (bad) throw new Error(bad.problem! + before);
      first ??= answer.items[0];
      done += part.length;
      setProduced(done);
    }
    if (first === undefined) throw new Error("There is no line with a record.");
    drop();
    say(done === 1 ? `Produced to ${topic}-${first.partition} at offset ${first.offset}.` : `Produced ${count(done)} records to ${topic}.`);
    if (done === 1) {
      go(to(["topics", topic, "records"], { partitions: first.partition, from: `offset:${first.offset}`, open: `${first.partition}:${first.offset}` }));
      return "stay" as const;
    }
    return undefined;
  };
  const choose = async (chosen: File | undefined) => {
    setFile(null);
    setFileProblem(null);
    if (!chosen) return;
    if (chosen.size > LARGEST_FILE) setFileProblem(`${chosen.name} has ${bytes(chosen.size)}; ${bytes(LARGEST_FILE)} at most. Use ottla console-producer for larger files.`);
    else setFile({ name: chosen.name, bytes: chosen.size, values: linesOf(await chosen.text()) });
  };
  return (
    <Dialog title={`Produce to ${topic}`} action={isMany ? "Produce each line" : "Produce"} run={run} isWide isReady={unfit === null && noPartition === null}>
      {unfit ? <p class="failure">{unfit}</p> : null}
      {old ? <p class="hint">Like {old.partition}:{old.offset} of {time(old.timestamp)}; it becomes a new record with the time of now.</p> : null}
      <div class="row">
        <CheckField label="Key" isChecked={fields.hasKey} onChange={(hasKey) => change({ hasKey })} hint="Without it the key is null" />
        <CheckField label="Tombstone" isChecked={fields.isTombstone} onChange={(isTombstone) => change({ isTombstone })} hint="The value is null: compaction deletes the key" />
        <CheckField label="One record a line" isChecked={isMany} onChange={(on) => change({ isMany: on })} hint="Empty lines are left out" />
      </div>
      {fields.hasKey ? <TextField label="Key text" value={fields.key} onChange={(key) => change({ key })} isFocused /> : null}
      {isMany ? (
        <label class="field">
          <span>File, instead of the values below</span>
          <input type="file" onChange={(event) => void choose(event.currentTarget.files?.[0])} />
          {fileProblem ? <small class="bad">{fileProblem}</small> : file ? <small>{`${plural(file.values.length, "record")}, ${bytes(file.bytes)}`}</small> : null}
        </label>
      ) : null}
      {produced > 0 ? <p aria-live="polite">Produced {count(produced)}.</p> : null}
      {isMany && file ? null : fields.isTombstone && !isMany ? <p class="hint">The value is null.</p> : <TextField label={isMany ? "Values" : "Value"} lines={8} value={fields.value} onChange={(value) => change({ value })} isFocused />}
      <div class="row">
        <SelectField
          label="Key and value are"
          value={fields.encoding}
          options={[
            ["text", "text (UTF-8)"],
            ["hex", "hexadecimal digits"],
            ["base64", "base64"],
          ]}
          onChange={(encoding) => change({ encoding })}
        />
        <TextField label="Partition" type="number" min={0} value={fields.partition} onChange={(partition) => change({ partition })} placeholder={partitions === undefined ? "the key's" : `the key's; or 0 to ${partitions - 1}`} problem={noPartition} />
      </div>
      <fieldset>
        <legend>Headers</legend>
        {fields.headers.map(([key, value], index) => (
          <div class="row" key={index}>
            <TextField label="Header" value={key} onChange={(next) => change({ headers: fields.headers.with(index, [next, value]) })} />
            <TextField label="Value" value={value} onChange={(next) => change({ headers: fields.headers.with(index, [key, next]) })} />
            <button type="button" class="plain" aria-label={`Remove header ${key}`} onClick={() => change({ headers: fields.headers.toSpliced(index, 1) })}>
              ×
            </button>
          </div>
        ))}
        <button type="button" onClick={() => change({ headers: [...fields.headers, ["", ""]] })}>
          Add header
        </button>
      </fieldset>
    </Dialog>
  );
}
