import { useState } from "preact/hooks";

import { Problem, api, call } from "../../api";
import { useDraft } from "../../draft";
import { settingHint } from "../../format";
import { useGet } from "../../load";
import { Dialog } from "../../parts/dialog";
import { TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { plainText } from "../../parts/settings";
import type { Setting } from "../../wire";

interface Fields {
  name: string;
  partitions: string;
  replication: string;
  configs: [string, string][];
}

const NEW: Fields = { name: "", partitions: "", replication: "", configs: [] };

/** Kafka's rules for names, said before the cluster has to. */
export function nameProblem(name: string): string | null {
  if (name === "") return null;
  if (name === "." || name === "..") return `“${name}” is no name of a topic`;
  if (name.length > 249) return `${name.length} characters; at most 249`;
  const bad = name.match(/[^a-zA-Z0-9._-]/);
  return bad ? `“${bad[0]}” cannot be in a name; letters, digits, “.”, “_” and “-” can` : null;
}

export function CreateTopic({ onCreated }: { onCreated: (name: string, partitions: number) => string }) {
  const [fields, change, drop] = useDraft("create-topic", NEW);
  const [problem, setProblem] = useState<Problem | null>(null);
  const { data } = useGet<{ items: Setting[] }>(api(["topic-settings"]));
  const known = data?.items ?? [];
  const run = async () => {
    const body = {
      name: fields.name,
      partitions: fields.partitions ? Number(fields.partitions) : null,
      replication_factor: fields.replication ? Number(fields.replication) : null,
      configs: Object.fromEntries(fields.configs.filter(([name]) => name)),
    };
    try {
      const created = await call<{ partitions: number }>("POST", api(["topics"]), body);
      drop();
      say(onCreated(fields.name, created.partitions));
    } catch (error) {
      if (error instanceof Problem && error.field) setProblem(error);
      throw error;
    }
  };
  const at = (field: string) => (problem?.field === field ? problem.message : null);
  const setConfig = (index: number, pair: [string, string] | null) => change({ configs: fields.configs.flatMap((old, at) => (at === index ? (pair ? [pair] : []) : [old])) });
  return (
    <Dialog title="Create topic" action="Create topic" run={run} isReady={fields.name !== "" && nameProblem(fields.name) === null}>
      <TextField label="Name" value={fields.name} onChange={(name) => change({ name })} isFocused isRequired problem={nameProblem(fields.name) ?? at("name")} />
      <div class="row">
        <TextField label="Partitions" type="number" min={1} value={fields.partitions} onChange={(partitions) => change({ partitions })} hint="Empty: the cluster's num.partitions" problem={at("partitions")} />
        <TextField
          label="Replication factor"
          type="number"
          min={1}
          value={fields.replication}
          onChange={(replication) => change({ replication })}
          hint="Empty: the cluster's default"
          problem={at("replication_factor")}
        />
      </div>
      <fieldset>
        <legend>Settings</legend>
        {fields.configs.length === 0 ? <p class="hint">The cluster's defaults.</p> : null}
        {fields.configs.map(([name, value], index) => {
          const setting = known.find((it) => it.name === name);
          const hint = settingHint(name, value);
          return (
            <div class="row" key={index}>
              <TextField
                label="Setting"
                value={name}
                list={known.map((it) => it.name)}
                onChange={(next) => setConfig(index, [next, value])}
                hint={setting ? plainText(setting.documentation).slice(0, 220) : "A setting of a topic, such as retention.ms"}
              />
              <TextField label="Value" value={value} onChange={(next) => setConfig(index, [name, next])} hint={[hint, setting ? `default ${setting.value ?? "not set"}` : ""].filter(Boolean).join("; ")} />
              <button type="button" class="plain" aria-label={`Remove ${name || "the setting"}`} onClick={() => setConfig(index, null)}>
                ×
              </button>
            </div>
          );
        })}
        <button type="button" onClick={() => change({ configs: [...fields.configs, ["", ""]] })}>
          Add setting
        </button>
      </fieldset>
    </Dialog>
  );
}
