/** The start of the read, and the filters. Nothing is read until the form is submitted; then it is the address. */
import { useRef, useState } from "preact/hooks";

import { go, to } from "../../address";
import { time } from "../../format";
import { useKeys } from "../../keys";
import { Choice, SelectField, TextField } from "../../parts/fields";
import { type Scan, isFiltered, plain } from "./scan";

type Start = "newest" | "live" | "beginning" | "offset" | "time";

const STARTS: readonly (readonly [Start, string])[] = [
  ["newest", "Newest"],
  ["live", "Live"],
  ["beginning", "Beginning"],
  ["offset", "Offset"],
  ["time", "Time"],
];

function startOf(scan: Scan): Start {
  if (scan.follow) return "live";
  if (scan.from === "beginning") return "beginning";
  if (scan.from.startsWith("offset")) return "offset";
  if (scan.from.startsWith("timestamp")) return "time";
  return "newest";
}

/** The format of a `datetime-local` field: local time without an offset. */
const forField = (ms: number): string => time(ms).slice(0, 19).replace(" ", "T");

export function RecordsForm({ topic, scan, partitions, again }: { topic: string; scan: Scan; partitions: number | undefined; again: () => void }) {
  const [start, setStart] = useState<Start>(startOf(scan));
  const [offset, setOffset] = useState(scan.from.startsWith("offset:") ? scan.from.slice("offset:".length) : "");
  const [at, setAt] = useState(forField(scan.from.startsWith("timestamp:") ? Number(scan.from.slice("timestamp:".length)) : Date.now() - 3_600_000));
  const [untilAt, setUntilAt] = useState(scan.until.startsWith("timestamp:") ? forField(Number(scan.until.slice("timestamp:".length))) : "");
  const [newest, setNewest] = useState(scan.from.startsWith("last:") ? scan.from.slice("last:".length) : "100");
  const [fields, setFields] = useState(scan);
  const [isMore, showMore] = useState(Boolean(scan.key || scan.json_path || scan.expression || scan.partitions || scan.until || scan.isolation || scan.limit));
  const change = (part: Partial<Scan>) => setFields({ ...fields, ...part });
  const form = useRef<HTMLFormElement>(null);
  const search = useRef<HTMLInputElement>(null);
  useKeys([{ keys: "/", does: "search the records", run: () => search.current?.focus() }]);

  const wanted = (with_: Start = start, next: Scan = fields): Scan => {
    const from = {
      live: "end",
      beginning: "beginning",
      offset: `offset:${offset || "0"}`,
      time: `timestamp:${new Date(at).getTime() || 0}`,
      newest: `last:${newest || "100"}`,
    }[with_];
    const isLive = with_ === "live";
    // The view is chosen elsewhere, and may have changed since the form was opened.
    return { ...next, format: scan.format, from, follow: isLive, until: untilAt && !isLive ? `timestamp:${new Date(untilAt).getTime()}` : "" };
  };
  const submit = (next: Scan) => {
    const parameters = plain(next);
    if (next.follow) delete parameters["from"];
    const address = to(["topics", topic, "records"], parameters);
    if (address === location.pathname + location.search) again();
    else go(address);
  };
  const choose = (next: Start) => {
    setStart(next);
    if (next !== "offset" && next !== "time") submit(wanted(next));
  };
  return (
    <form
      ref={form}
      class="scanform"
      onSubmit={(event) => {
        event.preventDefault();
        // A search over the newest hundred records is rarely intended; the beginning is one choice away.
        submit(wanted());
      }}
    >
      <div class="bar">
        <Choice label="Read from" value={start} options={STARTS} onChange={choose} />
        {start === "offset" ? <input class="short" type="number" min={0} aria-label="Offset" placeholder="offset" value={offset} onInput={(event) => setOffset(event.currentTarget.value)} /> : null}
        {start === "time" ? <input type="datetime-local" step={1} aria-label="Time" value={at} onInput={(event) => setAt(event.currentTarget.value)} /> : null}
        {start === "newest" ? <input class="short" type="number" min={1} max={10000} aria-label="How many" title="How many of the newest" value={newest} onInput={(event) => setNewest(event.currentTarget.value)} /> : null}
        <input
          ref={search}
          class="search"
          type="search"
          aria-label="Text in key, value or headers"
          placeholder="Text in key, value or headers  ( / )"
          value={fields.text}
          spellcheck={false}
          onInput={(event) => change({ text: event.currentTarget.value })}
          onKeyDown={(event) => event.key === "Escape" && search.current?.blur()}
        />
        <button type="submit" class="primary">
          {isFiltered(fields) ? "Search" : start === "live" ? "Follow" : "Read"}
        </button>
        <button type="button" class="plain" aria-expanded={isMore} onClick={() => showMore(!isMore)}>
          {isMore ? "Fewer" : "More"} filters
        </button>
      </div>
      {isMore ? (
        <div class="grid">
          <TextField label="Key, exactly" value={fields.key} onChange={(key) => change({ key })} />
          <TextField label="JSON path" value={fields.json_path} onChange={(json_path) => change({ json_path })} placeholder={'$.user.id == "42"'} hint="A path, or a path with ==, !=, <, >" />
          <TextField label="Expression" value={fields.expression} onChange={(expression) => change({ expression })} placeholder={'value.total > 100 && key.startsWith("c-")'} hint="Over key, value, headers: ==, <, &&, ||, in, has(), .contains(), .matches()" />
          <TextField label="Partitions" value={fields.partitions} onChange={(text) => change({ partitions: text.replaceAll(" ", "") })} placeholder={partitions === undefined ? "all" : `all ${partitions}; or 0,3,5`} />
          {start === "live" ? (
            <TextField label="Records a second, at most" type="number" min={1} value={fields.rate} onChange={(value) => change({ rate: value })} placeholder="50" />
          ) : (
            <>
              <TextField label="Until" type="datetime-local" value={untilAt} onChange={setUntilAt} />
              <TextField label="At most" type="number" min={1} value={fields.limit} onChange={(limit) => change({ limit })} placeholder="100" hint="Matching records, 10,000 at most" />
            </>
          )}
          <SelectField
            label="Isolation"
            value={fields.isolation || "read_uncommitted"}
            options={[
              ["read_uncommitted", "all records"],
              ["read_committed", "committed only"],
            ]}
            onChange={(isolation) => change({ isolation: isolation === "read_committed" ? isolation : "" })}
          />
        </div>
      ) : null}
    </form>
  );
}
