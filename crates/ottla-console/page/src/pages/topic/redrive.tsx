/**
 * Sends records again to another topic: those that were chosen, or all that match. Counts first, then sends what was
 * counted. If that breaks off, the next try sends what is left.
 */
import { useEffect, useRef, useState } from "preact/hooks";

import { Problem, api, stream, textOf } from "../../api";
import { useDraft } from "../../draft";
import { bytes, count, plural } from "../../format";
import { useGet } from "../../load";
import { Dialog } from "../../parts/dialog";
import { CheckField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import type { List, PartitionRange, Progress, RedriveOutcome, TopicRow } from "../../wire";
import { type Scan, isFiltered, placeText } from "./scan";

const MOST_CHOSEN = 1000;

/** A dead-letter topic is mostly named after the topic that its records belong to. */
export function guessTarget(topic: string): string {
  const guess = topic.replace(/[._-](dlq|dlt|dead-letter|dead_letter|dead-letters|errors?|retry)$/i, "");
  return guess === topic ? "" : guess;
}

/** Where the records are that are still to be sent. */
interface Left {
  /** The choice that they belong to. */
  wanted: string;
  topicId: string;
  /** Good for one redrive. */
  token: string | null;
  ranges: PartitionRange[];
  /** Records that may have been sent. */
  unknown: PartitionRange[];
  unknownRecords: number;
  sent: number;
  /** Some of them are no longer in the topic: the rest must be counted again. */
  isStale: boolean;
}

export function Redrive({ topic, scan, chosen, done }: { topic: string; scan: Scan; chosen: readonly string[] | null; done: () => void }) {
  const [fields, change, drop] = useDraft(`redrive ${topic}`, { to: guessTarget(topic), keepPartition: false, keepTimestamp: true });
  const { data: topics } = useGet<List<TopicRow>>(api(["topics"], { limit: 1000 }));
  const [progress, setProgress] = useState<Progress | null>(null);
  const [left, setLeft] = useState<Left | null>(null);
  const [sendsUnknown, setSendsUnknown] = useState(false);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);

  const stop = () => {
    abort.current.abort();
    abort.current = new AbortController();
  };

  const body = (preview: boolean) => {
    const records = chosen?.map((place) => {
      const [partition, offset] = place.split(":");
      return { partition: Number(partition), offset: Number(offset) };
    });
    const matching = Object.fromEntries(
      Object.entries({ from: scan.from, until: scan.until, text: scan.text, key: scan.key, json_path: scan.json_path, expression: scan.expression, partitions: scan.partitions, isolation: scan.isolation }).filter(([, value]) => value),
    );
    return { to: fields.to, ...(records ? { records } : { matching }), keep_partition: fields.keepPartition, keep_timestamp: fields.keepTimestamp, preview };
  };
  /** Only counted records are sent: another choice must be counted again. */
  const wanted = JSON.stringify(body(false));
  const counted = left?.wanted === wanted ? left : null;
  const isResumed = counted !== null && counted.sent + counted.unknownRecords > 0;
  const run = async () => {
    const ranges = counted === null ? [] : [...counted.ranges, ...(sendsUnknown ? counted.unknown : [])];
    const isPreview = counted === null || counted.isStale;
    const request = counted === null ? body(true) : { ...body(isPreview), topic_id: counted.topicId, ranges, ...(isPreview ? {} : { token: counted.token }) };
    const { signal } = abort.current;
    const seen = { last: null as Progress | null, problem: null as string | null, isDone: false };
    try {
      await stream("POST", api(["topics", topic, "redrive"]), request, signal, (events) => {
        for (const event of events) {
          if (event.name === "problem") seen.problem = (event.data as { detail: string }).detail;
          else seen.last = event.data as Progress;
          if (event.name === "done") seen.isDone = true;
        }
        setProgress(seen.last);
      });
      if (!seen.isDone && seen.problem === null) throw new Error("the stream ended early");
    } catch (error) {
      // The rest is unknown, or the topic has changed since the count.
      setLeft(counted !== null && isResumed && !isPreview && seen.last === null && error instanceof Problem && error.status === 409 ? { ...counted, isStale: true } : null);
      if (isPreview) throw signal.aborted ? new Error("The count is stopped.") : error;
      if (seen.last === null && !signal.aborted) throw error;
      throw new Error(`${signal.aborted ? "Stopped" : textOf(error)}; some records may have been sent, and the console's audit log has which: look before sending again`);
    }
    const outcome = seen.last !== null && "ranges" in seen.last ? (seen.last as RedriveOutcome) : null;
    const sent = (counted?.sent ?? 0) + (outcome?.sent ?? 0);
    const open = counted === null || sendsUnknown ? null : counted;
    const unknownRecords = (open?.unknownRecords ?? 0) + (outcome?.unknown_records ?? 0);
    if (outcome !== null) {
      setLeft({ wanted, topicId: outcome.topic_id, token: outcome.token, ranges: outcome.ranges, unknown: [...(open?.unknown ?? []), ...outcome.unknown], unknownRecords, sent, isStale: outcome.token === null });
      setSendsUnknown(false);
    }
    if (seen.problem !== null) throw new Error(seen.problem);
    if (isPreview) return "stay" as const;
    drop();
    done();
    say(`${plural(sent, "record")} sent to ${fields.to}.${unknownRecords > 0 ? ` Of ${plural(unknownRecords, "record")} it is not known.` : ""}`);
    return undefined;
  };
  const matched = progress?.matched ?? null;
  return (
    <Dialog title={chosen ? `Send ${plural(chosen.length, "record")} again` : "Send all that match again"} action={counted === null ? "Count first" : counted.isStale ? "Count the rest" : isResumed ? "Send the rest" : `Send ${plural(matched, "record")}`} run={run} stop={stop} isReady={fields.to !== "" && !(chosen && (chosen.length === 0 || chosen.length > MOST_CHOSEN)) && (counted === null || (isResumed ? counted.ranges.length > 0 || sendsUnknown : matched !== 0))}>
      <p>
        {chosen ? `The chosen records of ${topic}` : isFiltered(scan) ? `All records of ${topic} that match the filters, ${placeText(scan)},` : `All records of ${topic} ${placeText(scan)}, without a filter,`} are read and produced
        again. Key, value and headers stay byte for byte. They also stay in {topic}.
      </p>
      {chosen && chosen.length > MOST_CHOSEN ? <p class="hint">{count(MOST_CHOSEN)} records can be chosen one by one. For more, filter for them and send all.</p> : null}
      {chosen?.length === 0 ? <p class="hint">The choice of records is gone. Close this and choose them again.</p> : null}
      <TextField label="To topic" value={fields.to} onChange={(to) => change({ to })} list={topics?.items.map((it) => it.name) ?? []} isFocused isRequired />
      {fields.to === topic ? <p class="hint">This is the same topic: it will then contain every record twice.</p> : null}
      <div class="row">
        <CheckField label="Keep the partition" isChecked={fields.keepPartition} onChange={(keepPartition) => change({ keepPartition })} hint="Same partition number instead of the key's" />
        <CheckField label="Keep the timestamp" isChecked={fields.keepTimestamp} onChange={(keepTimestamp) => change({ keepTimestamp })} />
      </div>
      {progress ? (
        <p aria-live="polite">
          {isResumed ? (
            <>
              <b>{plural(counted.sent, "record")}</b> sent to {fields.to}. The next try sends the rest{counted.ranges.length === 0 ? ", of which nothing is left" : ""}.
            </>
          ) : counted !== null ? (
            <>
              Will send <b>{plural(matched, "record")}</b> to {fields.to} (read {count(progress.scanned)}, {bytes(progress.scanned_bytes)}).
            </>
          ) : (
            <>
              Read {count(progress.scanned)}, match {count(progress.matched)}
              {progress.sent ? `, sent ${count(progress.sent)}` : ""}
            </>
          )}
        </p>
      ) : null}
      {counted !== null && counted.unknownRecords > 0 ? (
        <CheckField label={`Also send the ${plural(counted.unknownRecords, "record")} that may have been sent`} isChecked={sendsUnknown} onChange={setSendsUnknown} hint="Their acknowledgements are missing, so the target may then contain them twice" />
      ) : null}
    </Dialog>
  );
}
