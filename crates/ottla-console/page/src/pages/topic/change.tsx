/** Changes to a whole topic. Each dialog shows its effect in numbers. */
import { useEffect, useState } from "preact/hooks";

import { go } from "../../address";
import { Problem, api, call, textOf } from "../../api";
import { useEdit } from "../../draft";
import { bytes, count, plural, visible } from "../../format";
import { Dialog } from "../../parts/dialog";
import { TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Failure } from "../../parts/states";
import type { Topic } from "../../wire";

export function AddPartitions({ topic, reload }: { topic: Topic; reload: () => void }) {
  const [text, setText] = useEdit(`partitions ${topic.name}`, String(topic.partitions + 1));
  const wanted = Number(text);
  const isMore = Number.isInteger(wanted) && wanted > topic.partitions;
  const run = async () => {
    await call("POST", api(["topics", topic.name, "partitions"]), { count: wanted });
    say(`Topic ${topic.name} has ${plural(wanted, "partition")}.`);
    reload();
  };
  return (
    <Dialog title={`Add partitions to ${topic.name}`} action="Add partitions" run={run} isReady={isMore}>
      <TextField
        label="Partitions"
        type="number"
        min={topic.partitions + 1}
        value={text}
        onChange={setText}
        isFocused
        problem={isMore ? null : `there are ${topic.partitions}; the number can only grow`}
      />
      {isMore ? (
        <p>
          {plural(topic.partitions, "partition")} become{topic.partitions === 1 ? "s" : ""} {count(wanted)}: {plural((wanted - topic.partitions) * topic.replication_factor, "new replica")}. Records that are there stay where they are. New records of a key may go
          to another partition than its old ones, so consumers may see them out of order.
        </p>
      ) : null}
    </Dialog>
  );
}

interface Emptied {
  topic_id: string;
  records: number;
  partitions: { partition: number; log_start_offset: number; records: number; problem: string | null }[];
}

export function EmptyTopic({ topic, reload }: { topic: Topic; reload: () => void }) {
  const address = api(["topics", topic.name, "empty"]);
  const [preview, setPreview] = useState<Emptied | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [round, setRound] = useState(0);
  useEffect(() => {
    call<Emptied>("POST", address, { preview: true }).then(setPreview, (error: unknown) => setProblem(error instanceof Problem ? error : new Problem(0, textOf(error))));
  }, [round]);
  const run = async () => {
    // Records written since the preview stay.
    const before = Object.fromEntries(preview!.partitions.map((it) => [it.partition, it.log_start_offset]));
    const done = await call<Emptied>("POST", address, { confirm: topic.name, topic_id: preview!.topic_id, before }).catch((error: unknown) => {
      setRound(round + 1);
      throw error;
    });
    const bad = done.partitions.find((it) => it.problem);
    if (bad) throw new Error(`partition ${bad.partition}: ${bad.problem}`);
    say(`${plural(done.records, "record")} of ${topic.name} deleted.`);
    reload();
  };
  const refused = preview?.partitions.find((it) => it.problem);
  return (
    <Dialog title={`Empty ${topic.name}`} action={preview ? `Delete ${plural(preview.records, "record")}` : "Delete the records"} isDangerous typed={topic.name} run={run} isReady={preview !== null && preview.records > 0}>
      <Failure problem={problem} />
      {preview ? (
        preview.records === 0 ? (
          <p>There is nothing to delete: the topic holds no records.</p>
        ) : (
          <p>
            Deletes up to <b>{plural(preview.records, "record")}</b> in {plural(preview.partitions.filter((it) => it.records > 0).length, "partition")} ({bytes(topic.bytes)} on all replicas). The topic, its settings and the offsets of new
            records stay. {topic.group_count > 0 ? `${plural(topic.group_count, "group")} read${topic.group_count === 1 ? "s" : ""} from it; what they have not read yet (lag up to ${count(topic.lag)}) is lost. ` : ""}
            This cannot be undone.
          </p>
        )
      ) : problem ? null : (
        <p aria-busy="true">Counting …</p>
      )}
      {refused ? (
        <p class="bad">
          Partition {refused.partition}: {refused.problem}
        </p>
      ) : null}
    </Dialog>
  );
}

export function DeleteTopic({ topic }: { topic: Topic }) {
  const run = async () => {
    await call("DELETE", api(["topics", topic.name], { confirm: topic.name }));
    say(`Topic ${topic.name} is deleted.`);
    go("/topics", "replace");
    return "stay" as const;
  };
  return (
    <Dialog title={`Delete ${topic.name}`} action="Delete topic" isDangerous typed={topic.name} run={run}>
      <p>
        Deletes the topic with <b>{plural(topic.partitions, "partition")}</b>, <b>{plural(topic.records, "record")}</b> and <b>{bytes(topic.bytes)}</b> on all replicas, and its settings.{" "}
        {topic.group_count > 0
          ? `${plural(topic.group_count, "group")} (${topic.groups
              .slice(0, 3)
              .map((group) => visible(group.group_id))
              .join(", ")}${topic.group_count > 3 ? ", …" : ""}) will find nothing to read. `
          : "No group has offsets in it. "}
        Programs that produce to it fail, or create it again if the brokers' <code>auto.create.topics.enable</code> is on. This cannot be undone.
      </p>
      {topic.is_internal ? <p class="bad">This is an internal topic: the cluster keeps its own state in it.</p> : null}
    </Dialog>
  );
}
