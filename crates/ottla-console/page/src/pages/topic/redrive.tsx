/** Sends records again to another topic: those that were chosen, or all that match. Counts first, then sends. */
import { useEffect, useRef, useState } from "preact/hooks";

import { api, stream } from "../../api";
import { useDraft } from "../../draft";
import { bytes, count, plural } from "../../format";
import { useGet } from "../../load";
import { Dialog } from "../../parts/dialog";
import { CheckField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import type { List, Progress, TopicRow } from "../../wire";
import { type Scan, isFiltered } from "./scan";

const MOST_CHOSEN = 1000;

/** A dead-letter topic is mostly named after the topic that its records belong to. */
export function guessTarget(topic: string): string {
  const guess = topic.replace(/[._-](dlq|dlt|dead-letter|dead_letter|dead-letters|errors?|retry)$/i, "");
  return guess === topic ? "" : guess;
}

export function Redrive({ topic, scan, chosen, done }: { topic: string; scan: Scan; chosen: readonly string[] | null; done: () => void }) {
  const [fields, change, drop] = useDraft(`redrive ${topic}`, { to: guessTarget(topic), keepPartition: false, keepTimestamp: true });
  const { data: topics } = useGet<List<TopicRow>>(api(["topics"], { limit: 1000 }));
  const [progress, setProgress] = useState<Progress | null>(null);
  const [counted, setCounted] = useState<string | null>(null);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);

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
  /** What was counted is what is sent: another choice has to be counted anew. */
  const wanted = JSON.stringify(body(false));
  const isCounted = counted === wanted;
  const run = async () => {
    const isPreview = !isCounted;
    let last: Progress | null = null;
    let problem: string | null = null;
    let isDone = false;
    await stream("POST", api(["topics", topic, "redrive"]), body(isPreview), abort.current.signal, (events) => {
      for (const event of events) {
        if (event.name === "problem") problem = (event.data as { detail: string }).detail;
        else last = event.data as Progress;
        if (event.name === "done") isDone = true;
      }
      setProgress(last);
    });
    const before = (last as Progress | null)?.sent ?? 0;
    if (problem !== null) throw new Error(before > 0 ? `${problem}; ${plural(before, "record")} had been sent before that` : problem);
    if (!isDone) throw new Error("the stream ended early; some records may have been sent: look into the topic before sending again");
    if (isPreview) {
      setCounted(wanted);
      return "stay" as const;
    }
    const sent = (last as Progress | null)?.sent ?? null;
    drop();
    done();
    say(`${plural(sent, "record")} sent to ${fields.to}.`);
    return undefined;
  };
  const matched = progress?.matched ?? null;
  return (
    <Dialog title={chosen ? `Send ${plural(chosen.length, "record")} again` : "Send all that match again"} action={isCounted ? `Send ${plural(matched, "record")}` : "Count first"} run={run} isReady={fields.to !== "" && !(chosen && (chosen.length === 0 || chosen.length > MOST_CHOSEN)) && !(isCounted && matched === 0)}>
      <p>
        {chosen ? `The chosen records of ${topic}` : isFiltered(scan) ? `All records of ${topic} that match the filters, from “${scan.from}”` : `All records of ${topic} from “${scan.from}”, without a filter,`} are read and produced
        again. Key, value and headers stay byte for byte. They also stay in {topic}.
      </p>
      {chosen && chosen.length > MOST_CHOSEN ? <p class="hint">{count(MOST_CHOSEN)} records can be chosen one by one. For more, filter for them and send all.</p> : null}
      {chosen?.length === 0 ? <p class="hint">The choice of records is gone. Close this and choose them again.</p> : null}
      <TextField label="To topic" value={fields.to} onChange={(to) => change({ to })} list={topics?.items.map((it) => it.name) ?? []} isFocused isRequired />
      {fields.to === topic ? <p class="hint">That is the same topic: every record is then there twice.</p> : null}
      <div class="row">
        <CheckField label="Keep the partition" isChecked={fields.keepPartition} onChange={(keepPartition) => change({ keepPartition })} hint="Same partition number instead of the key's" />
        <CheckField label="Keep the timestamp" isChecked={fields.keepTimestamp} onChange={(keepTimestamp) => change({ keepTimestamp })} />
      </div>
      {progress ? (
        <p aria-live="polite">
          {isCounted ? (
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
    </Dialog>
  );
}
