/**
 * The records of a topic: a page from any position, a live tail, or a search. What is asked for is the address, so that
 * it can be shared and survives a reload. The server reads and filters; closing the stream stops it.
 */
import { useEffect, useRef, useState } from "preact/hooks";

import { query, setQuery, to } from "../../address";
import { Problem, api, session, stream, textOf } from "../../api";
import { bytes, byteRate, count, duration, plural, short, time, visible } from "../../format";
import { useKeys } from "../../keys";
import { isDialogOpen, openDialog } from "../../parts/dialog";
import { Choice } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Empty, Failure } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { Data, KafkaRecord, Progress } from "../../wire";
import { RecordPane } from "./record";
import { Redrive } from "./redrive";
import { RecordsForm } from "./records_form";
import { SavedSearches } from "./saved_searches";
import { type Scan, isFiltered, plain, scanOf } from "./scan";
import { views } from "./views";

/** Rows that are kept, and their characters; the oldest are dropped. */
const KEPT = 100_000;
const KEPT_CHARACTERS = 64_000_000;

export const placeOf = (record: KafkaRecord): string => `${record.partition}:${record.offset}`;

type Phase = "running" | "done" | "stopped" | "failed";

interface Result {
  records: KafkaRecord[];
  /** Of the keys, values and headers of `records`. */
  characters: number;
  /** Rows that are no longer kept. */
  dropped: number;
  /** Records that were read for earlier pages of this result. */
  scannedBefore: number;
  progress: Progress | null;
  phase: Phase;
  problem: Problem | null;
}

const NOTHING: Result = { records: [], characters: 0, dropped: 0, scannedBefore: 0, progress: null, phase: "running", problem: null };

function charactersOf({ key, value, headers }: KafkaRecord): number {
  let sum = (key?.text.length ?? 0) + (value?.text.length ?? 0);
  for (const header of headers) sum += header.key.length + (header.value?.text.length ?? 0);
  return sum;
}

/** Adds rows, and drops the oldest if there are too many: a tab that keeps too much is ended by its browser. */
function add(kept: Result, records: readonly KafkaRecord[]): void {
  for (const record of records) {
    kept.records.push(record);
    kept.characters += charactersOf(record);
  }
  // Some at a time, because the other rows are moved.
  if (kept.records.length <= KEPT * 1.1 && kept.characters <= KEPT_CHARACTERS * 1.1) return;
  let first = 0;
  while (first < kept.records.length - 1 && (kept.records.length - first > KEPT || kept.characters > KEPT_CHARACTERS)) {
    kept.characters -= charactersOf(kept.records[first]!);
    first += 1;
  }
  kept.records.splice(0, first);
  kept.dropped += first;
}

function useScan(topic: string, scan: Scan, turn: number): Result & { stop: () => void; more: () => void } {
  const address = JSON.stringify([topic, scan, turn]);
  const [result, setResult] = useState<Result>(NOTHING);
  const abort = useRef(new AbortController());
  const run = (from: string, before: Result) => {
    const mine = new AbortController();
    abort.current = mine;
    // Mutated, and shown anew at most once a frame: a copy per batch would cost more than the records themselves.
    const kept: Result = { ...before, phase: "running", problem: null };
    setResult(kept);
    let frame = 0;
    const show = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (!mine.signal.aborted) setResult({ ...kept });
      });
    };
    const { follow, ...rest } = scan;
    stream("GET", api(["topics", topic, "records"], { ...rest, from, follow }), undefined, mine.signal, (events) => {
      for (const event of events) {
        if (event.name === "records") {
          add(kept, event.data as KafkaRecord[]);
        } else if (event.name === "progress") {
          kept.progress = event.data as Progress;
        } else if (event.name === "done") {
          kept.progress = event.data as Progress;
          kept.phase = "done";
          // The server reads one partition after the other; the newest of all are wanted in the order of their time.
          if (scan.from.startsWith("last:")) kept.records.sort((a, b) => (a.timestamp ?? 0) - (b.timestamp ?? 0) || a.partition - b.partition || a.offset - b.offset);
        } else if (event.name === "problem") {
          const said = event.data as { status?: number; detail?: string; code?: string | null };
          kept.problem = new Problem(said.status ?? 502, said.detail ?? "the stream ended", said.code ?? null);
          kept.phase = "failed";
        }
      }
      show();
    }).then(
      () => {
        if (mine.signal.aborted) return;
        if (kept.phase === "running") {
          kept.phase = "failed";
          kept.problem = new Problem(502, "The stream ended early: the console's server stopped, or the connection broke. Run it again.");
        }
        show();
      },
      (error: unknown) => {
        if (mine.signal.aborted) return;
        kept.phase = "failed";
        kept.problem = error instanceof Problem ? error : new Problem(0, textOf(error));
        show();
      },
    );
  };
  useEffect(() => {
    run(scan.from, { ...NOTHING, records: [] });
    return () => abort.current.abort();
  }, [address]);
  return {
    ...result,
    stop: () => {
      abort.current.abort();
      setResult((before) => ({ ...before, phase: before.phase === "running" ? "stopped" : before.phase }));
    },
    more: () => {
      const next = result.progress?.next;
      if (next) run(next, { ...result, scannedBefore: result.scannedBefore + (result.progress?.scanned ?? 0) });
    },
  };
}

/** A key or value on one line. */
function Preview({ data }: { data: Data | null }) {
  if (data === null) return <span class="soft">null</span>;
  if (data.bytes === 0) return <span class="soft">empty</span>;
  return (
    <span class={`data ${data.format}`} dir="ltr">
      {visible(data.text.slice(0, 400))}
      {data.cut ? <span class="soft"> … {bytes(data.bytes)}</span> : null}
    </span>
  );
}

const TIME: Column<KafkaRecord> = { id: "time", title: "Time", width: 205, isExtra: true, cell: (record) => <span class="stamp">{time(record.timestamp)}</span> };
const HEADERS: Column<KafkaRecord> = { id: "headers", title: "Headers", width: 90, isNumber: true, isExtra: true, cell: (record) => (record.headers.length > 0 ? count(record.headers.length) : "") };

export function Records({ topic, partitions }: { topic: string; partitions: number | undefined }) {
  const scan = scanOf(query.value);
  const [turn, setTurn] = useState(0);
  const { records, dropped, scannedBefore, progress, phase, problem, stop, more } = useScan(topic, scan, turn);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const open = query.value.get("open");
  const opened = open === null ? undefined : open;
  const again = () => setTurn(turn + 1);
  useKeys(
    [
      { keys: "l", does: "live tail", run: () => setQuery({ follow: "true", from: null, open: null }, "push") },
      { keys: "s", does: "stop", run: stop },
      { keys: "r", does: "read again", run: again },
    ],
    [turn, result(phase)],
  );
  useEffect(() => setChosen(new Set()), [topic]);
  const total = records.length;
  const isNewestFirst = scan.follow || scan.from.startsWith("last:");
  const at = (index: number) => records[isNewestFirst ? total - 1 - index : index];
  const toggle = (record: KafkaRecord) => {
    const next = new Set(chosen);
    if (!next.delete(placeOf(record))) next.add(placeOf(record));
    setChosen(next);
  };
  const mayChange = !session.value?.read_only;
  const columns: Column<KafkaRecord>[] = [
    ...(mayChange
      ? [
          {
            id: "choose",
            title: "",
            width: 34,
            isExtra: true,
            cell: (record: KafkaRecord) => <input type="checkbox" aria-label={`Choose record ${placeOf(record)}`} checked={chosen.has(placeOf(record))} onChange={() => toggle(record)} />,
          },
        ]
      : []),
    {
      id: "offset",
      title: "Offset",
      width: 140,
      narrowWidth: 116,
      isNumber: true,
      cell: (record) => (
        <button type="button" class="link" onClick={() => setQuery({ open: placeOf(record) })}>
          <span class="soft">{record.partition}:</span>
          {record.offset}
        </button>
      ),
      help: "Partition and offset",
    },
    ...(opened === undefined ? [TIME] : []),
    { id: "key", title: "Key", width: 160, narrowWidth: 90, cell: (record) => <Preview data={record.key} /> },
    { id: "value", title: "Value", cell: (record) => <Preview data={record.value} /> },
    ...(opened === undefined ? [HEADERS] : []),
  ];
  const found = opened === undefined ? undefined : records.find((record) => placeOf(record) === opened);
  return (
    <div class="full records">
      <RecordsForm key={JSON.stringify({ ...scan, format: "" })} topic={topic} scan={scan} partitions={partitions} again={again} />
      <div class="bar scan">
        <ScanState scan={scan} progress={progress} phase={phase} shown={total} dropped={dropped} scannedBefore={scannedBefore} stop={stop} again={again} />
        <span class="spring" />
        {mayChange && chosen.size > 0 ? (
          <>
            <button type="button" class="plain" onClick={() => setChosen(new Set())}>
              Choose none
            </button>
            <button type="button" onClick={() => openDialog("redrive", { of: "chosen" })}>
              Send {plural(chosen.size, "record")} again
            </button>
          </>
        ) : null}
        {mayChange && !scan.follow && chosen.size === 0 && total > 0 ? (
          <button type="button" onClick={() => openDialog("redrive", { of: "matching" })}>
            Send all again
          </button>
        ) : null}
        <button type="button" onClick={() => openDialog("saved")}>
          Saved searches
        </button>
        <button type="button" onClick={() => void copyLink()}>
          Copy link
        </button>
        <ExportLinks topic={topic} scan={scan} />
        <ViewChoice format={scan.format} />
      </div>
      <Failure problem={problem} retry={again} />
      <div class={opened === undefined ? "panes" : "panes two"}>
        <Table
          label="Records"
          isTall
          growsAtTop={scan.follow}
          columns={columns}
          total={total}
          row={at}
          onPick={(record) => setQuery({ open: placeOf(record) === opened ? null : placeOf(record) })}
          isPicked={(record) => placeOf(record) === opened || chosen.has(placeOf(record))}
        >
          <NoRecords topic={topic} scan={scan} phase={phase} progress={progress} />
        </Table>
        {opened !== undefined ? <RecordPane key={opened} topic={topic} place={opened} shown={found} format={scan.format} partitions={partitions} /> : null}
      </div>
      {phase === "done" && progress?.next ? (
        <div class="bar">
          <button type="button" onClick={more}>
            Read on
          </button>
          <span class="soft">{scan.limit || "100"} at a time</span>
        </div>
      ) : null}
      {isDialogOpen("saved") ? <SavedSearches topic={topic} scan={scan} /> : null}
      {isDialogOpen("redrive") ? <Redrive topic={topic} scan={scan} chosen={query.value.get("of") === "chosen" ? [...chosen] : null} done={() => setChosen(new Set())} /> : null}
    </div>
  );
}

/** Only whether it runs matters to the keys. */
const result = (phase: Phase): boolean => phase === "running";

async function copyLink(): Promise<void> {
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link to this view is copied.");
  } catch {
    say("The browser does not let the page copy; the link is the address of this page.", true);
  }
}

function ViewChoice({ format }: { format: string }) {
  return (
    <Choice
      label="View"
      value={format || "auto"}
      options={views(format)}
      onChange={(next) => setQuery({ format: next === "auto" ? null : next })}
    />
  );
}

function ExportLinks({ topic, scan }: { topic: string; scan: Scan }) {
  const { follow, rate: _rate, format: _format, ...rest } = scan;
  const link = (as: string) => api(["topics", topic, "export"], { ...rest, from: follow ? "last:100" : rest.from, as, download: 1 });
  return (
    <>
      <a class="button" download href={link("jsonl")}>
        JSON lines
      </a>
      <a class="button" download href={link("csv")}>
        CSV
      </a>
    </>
  );
}

/** The progress, the speed, and the records that a live tail skips. */
function ScanState({ scan, progress, phase, shown, dropped, scannedBefore, stop, again }: { scan: Scan; progress: Progress | null; phase: Phase; shown: number; dropped: number; scannedBefore: number; stop: () => void; again: () => void }) {
  const isRunning = phase === "running";
  const parts: string[] = [];
  const unjudged = progress?.unjudged ?? 0;
  if (unjudged > 0) parts.push(`${plural(unjudged, "record")} left out: the expression takes too long, or their schema cannot be read now`);
  if (scan.follow) {
    parts.push(isRunning ? "Live" : phase === "stopped" ? "Stopped" : "Ended");
    if (progress) {
      parts.push(`${short(progress.records_per_second)} records/s, ${byteRate(progress.bytes_per_second)}`);
      if (progress.skipped > 0) parts.push(`a sample: ${plural(shown + dropped, "record")} shown, ${count(progress.skipped)} more ${progress.skipped === 1 ? "was" : "were"} too many to show`);
    }
  } else if (progress) {
    parts.push(`${plural(shown + dropped, "record")}${isFiltered(scan) ? ` of ${count(scannedBefore + progress.scanned)} match` : ""}`);
    parts.push(`read ${bytes(progress.scanned_bytes)} in ${duration(progress.elapsed_ms)}`);
    if (isRunning || progress.elapsed_ms > 1000) parts.push(`${byteRate(progress.bytes_per_second)}, ${short(progress.records_per_second)} records/s`);
    if (phase === "stopped") parts.push("stopped");
  } else {
    parts.push(isRunning ? "Reading …" : phase === "stopped" ? "Stopped" : "");
  }
  if (dropped > 0) parts.push(`the ${scan.follow ? "newest" : "last"} ${count(shown)} are kept`);
  const fraction = progress?.fraction ?? null;
  return (
    <>
      {isRunning ? <span class={scan.follow ? "dot live" : "dot busy"} aria-hidden="true" /> : null}
      <span>{parts.filter(Boolean).join(" · ")}</span>
      {isRunning && fraction !== null ? (
        <progress aria-label="Searched" max={1} value={fraction} title={`${(fraction * 100).toFixed(0)} %`} />
      ) : null}
      {isRunning ? (
        <button type="button" onClick={stop}>
          Stop
        </button>
      ) : (
        <button type="button" onClick={again}>
          {scan.follow ? "Go on" : "Read again"}
        </button>
      )}
    </>
  );
}

function NoRecords({ topic, scan, phase, progress }: { topic: string; scan: Scan; phase: Phase; progress: Progress | null }) {
  if (phase === "running") {
    return scan.follow ? (
      <Empty title="Waiting for records">
        <p>They appear as they are produced. To see older ones, start from the beginning or from a time.</p>
      </Empty>
    ) : (
      <Empty title="Nothing found yet" />
    );
  }
  if (phase === "failed") return <Empty title="Nothing was read" />;
  if (isFiltered(scan)) {
    const isWhole = scan.from === "beginning";
    return (
      <Empty title={`None of ${plural(progress?.scanned ?? 0, "record")} matches`}>
        {isWhole ? (
          <p>Everything was searched. Check the spelling, or search in the text of key, value and headers instead of a path.</p>
        ) : (
          <p>
            Only a part was searched. <a href={to(["topics", topic, "records"], { ...plain(scan), from: "beginning" })}>Search from the beginning</a>.
          </p>
        )}
      </Empty>
    );
  }
  return (
    <Empty title="There are no records here">
      <p>
        The topic is empty from this position on. <a href={to(["topics", topic, "records"], { from: "beginning" })}>Read from the beginning</a>,{" "}
        <a href={to(["topics", topic, "records"], { follow: "true" })}>wait for new ones</a> or <a href={to(["topics", topic, "records"], { do: "produce" })}>produce one</a>.
      </p>
    </Empty>
  );
}
