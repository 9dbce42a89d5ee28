/** One record in full, beside the list. */
import { useMemo, useState } from "preact/hooks";

import { setQuery } from "../../address";
import { api, session } from "../../api";
import { bytes, time, visible, visibleLines } from "../../format";
import { hexDump, laidOut } from "../../json";
import { useGet } from "../../load";
import { isDialogOpen, openDialog } from "../../parts/dialog";
import { Choice } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Badge, Failure, Loading } from "../../parts/states";
import type { Data, KafkaRecord, SchemaName } from "../../wire";
import { Produce } from "./produce";
import { views } from "./views";

/** Longer text is shown in parts: laying out megabytes would stop the page. */
const SHOWN_CHARACTERS = 200_000;

export function RecordPane({ topic, place, shown, format, partitions }: { topic: string; place: string; shown: KafkaRecord | undefined; format: string; partitions: number | undefined }) {
  const [view, setView] = useState(format || "auto");
  const [partition = "", offset = ""] = place.split(":");
  // The list holds only the beginning of long values.
  const whole = useGet<KafkaRecord>(api(["topics", topic, "records", partition, offset], { format: view === "auto" ? "" : view }));
  const record = whole.data ?? (view === (format || "auto") ? shown : undefined);
  return (
    <aside class="pane" aria-label={`Record ${place}`}>
      <div class="bar">
        <b>
          <span class="soft">{partition}:</span>
          {offset}
        </b>
        <Choice
          label="View of the record"
          value={view}
          options={views(view)}
          onChange={setView}
        />
        <span class="spring" />
        <button type="button" class="plain" aria-label="Close the record" onClick={() => setQuery({ open: null })}>
          ×
        </button>
      </div>
      <Failure problem={whole.problem} retry={whole.reload} />
      {record ? (
        <>
          <div class="bar">
            <span class="soft">
              {time(record.timestamp)} {record.timestamp_type === "log_append_time" ? "log append time" : "create time"}
            </span>
            <span class="spring" />
            {session.value?.read_only ? null : (
              <button type="button" class="plain" onClick={() => openDialog("again")}>
                Edit and produce
              </button>
            )}
          </div>
          <Part name="Key" data={record.key} />
          <Part name="Value" data={record.value} />
          <section>
            <h2>Headers {record.headers.length > 0 ? <span class="soft">{record.headers.length}</span> : null}</h2>
            {record.headers.length === 0 ? <p class="soft">none</p> : null}
            <dl class="headers">
              {record.headers.map((header, index) => (
                <div key={index}>
                  <dt>{visible(header.key)}</dt>
                  <dd>{header.value === null ? <span class="soft">null</span> : visible(header.value.text)}</dd>
                </div>
              ))}
            </dl>
          </section>
        </>
      ) : whole.problem ? null : (
        <Loading what="the record" />
      )}
      {isDialogOpen("again") && record ? <Produce topic={topic} partitions={partitions} like={record} /> : null}
    </aside>
  );
}

function Part({ name, data }: { name: string; data: Data | null }) {
  return (
    <section>
      <h2>
        {name} {data ? <span class="soft">{bytes(data.bytes)}</span> : null} {data ? <Badge>{data.format}</Badge> : null}
        {data ? (
          <button type="button" class="plain" aria-label={`Copy the ${name.toLowerCase()}`} onClick={() => void copy(data.text)}>
            Copy
          </button>
        ) : null}
      </h2>
      {data === null ? <p class="soft">null{name === "Value" ? ": a tombstone in a compacted topic" : ""}</p> : <Content data={data} />}
      {data?.schema ? <p class="soft">{schemaOf(data.schema)}</p> : null}
      {data?.problem ? <p class="hint">{data.problem}</p> : null}
      {data?.cut ? <p class="hint">Only the beginning is shown. Export the record to get all of it.</p> : null}
    </section>
  );
}

const TITLES = { avro: "Avro", protobuf: "Protobuf", json: "JSON" };

function schemaOf(schema: SchemaName): string {
  const kind = schema.type ? `${TITLES[schema.type]} schema` : "Schema";
  return `${kind} ${schema.id}${schema.subject === null ? "" : `, subject ${visible(schema.subject)}`}`;
}

async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("The browser does not let the page copy.", true);
  }
}

function Content({ data }: { data: Data }) {
  const [length, setLength] = useState(SHOWN_CHARACTERS);
  const part = data.text.length > length ? data.text.slice(0, length) : data.text;
  const tokens = useMemo(() => (data.format === "text" || data.format === "hex" || part !== data.text ? null : laidOut(part)), [part, data.format]);
  return (
    <>
      <pre class="content" tabIndex={0} dir="ltr">
        {tokens
          ? tokens.map((token, index) =>
              token.kind === "mark" || token.kind === "space" ? (
                token.text
              ) : (
                <span key={index} class={`json-${token.kind}`}>
                  {visible(token.text)}
                </span>
              ),
            )
          : data.format === "hex"
            ? hexDump(part)
            : visibleLines(part)}
      </pre>
      {part !== data.text ? (
        <button type="button" onClick={() => setLength(length * 4)}>
          Show more
        </button>
      ) : null}
    </>
  );
}
