/** A run of `ottla bench`: its form, and its progress. */
import { useEffect, useState } from "preact/hooks";

import { Problem, api, call, stream, textOf } from "../../api";
import { to } from "../../address";
import { useDraft } from "../../draft";
import { ago, visible } from "../../format";
import { Dialog } from "../../parts/dialog";
import { SelectField, TextField } from "../../parts/fields";
import { say } from "../../parts/notices";
import { Badge, Failure } from "../../parts/states";
import type { BenchRun } from "../../wire";

/** Lines of the output that are shown. */
const KEPT = 200;

interface Fields {
  scenario: string;
  scale: "small" | "published";
  replicas: string;
  repetitions: string;
  seconds: string;
}

const NEW: Fields = { scenario: "", scale: "small", replicas: "1", repetitions: "", seconds: "" };

export function RunForm({ scenarios, onStart }: { scenarios: { name: string; title: string }[]; onStart: () => void }) {
  const [fields, change] = useDraft("bench-run", NEW);
  const [problem, setProblem] = useState<Problem | null>(null);
  const scenario = fields.scenario || (scenarios[0]?.name ?? "");
  const number = (text: string) => (text === "" ? null : Number(text));
  const run = async () => {
    setProblem(null);
    try {
      await call<BenchRun>("POST", api(["measure", "run"]), {
        scenario,
        is_small: fields.scale === "small",
        replicas: number(fields.replicas),
        repetitions: number(fields.repetitions),
        seconds: number(fields.seconds),
      });
    } catch (error) {
      if (error instanceof Problem) setProblem(error);
      throw error;
    }
    say(`${scenario} is running.`);
    onStart();
  };
  const problemOf = (field: string) => (problem?.field === field ? problem.message : null);
  return (
    <Dialog title="Run a benchmark" action="Run" run={run} isReady={scenario !== ""}>
      <p>
        It writes records to this cluster as fast as the scenario asks for, from the machine of this console, into a topic of its own that is deleted at the end.
      </p>
      <SelectField label="Scenario" value={scenario} options={scenarios.map((it) => [it.name, `${it.name} – ${it.title}`] as const)} onChange={(value) => change({ scenario: value })} />
      <SelectField
        label="Scale"
        value={fields.scale}
        options={[
          ["small", "small: seconds to minutes"],
          ["published", "as published: may take hours and fill disks"],
        ]}
        onChange={(value) => change({ scale: value })}
      />
      <div class="row">
        <TextField label="Replicas" type="number" min={1} value={fields.replicas} onChange={(value) => change({ replicas: value })} problem={problemOf("replicas")} hint="empty: the scenario's" />
        <TextField label="Rounds" type="number" min={1} value={fields.repetitions} onChange={(value) => change({ repetitions: value })} problem={problemOf("repetitions")} hint="empty: the scenario's" />
        <TextField label="Seconds a round" type="number" min={1} value={fields.seconds} onChange={(value) => change({ seconds: value })} problem={problemOf("seconds")} hint="empty: the scenario's" />
      </div>
    </Dialog>
  );
}

/** The newest run, followed to its end. */
export function RunProgress({ run, mayStop, onEnd }: { run: BenchRun; mayStop: boolean; onEnd: () => void }) {
  const [now, setNow] = useState<Omit<BenchRun, "scenario" | "started">>(run);
  const [lines, setLines] = useState<string[]>([]);
  const [problem, setProblem] = useState<Problem | null>(null);
  const wasRunning = run.state !== "ended";
  useEffect(() => {
    const abort = new AbortController();
    stream("GET", api(["measure", "run", "output"]), undefined, abort.signal, (events) => {
      for (const event of events) {
        if (event.name === "lines") setLines((before) => [...before, ...(event.data as string[])].slice(-KEPT));
        else if (event.name === "problem") setProblem(new Problem(502, (event.data as { detail?: string }).detail ?? "the stream ended"));
        else setNow(event.data as BenchRun);
        if (event.name === "done" && wasRunning) onEnd();
      }
    }).catch((error: unknown) => {
      if (!abort.signal.aborted) setProblem(error instanceof Problem ? error : new Problem(0, textOf(error)));
    });
    return () => abort.abort();
  }, []);
  const stop = async () => {
    try {
      await call("DELETE", api(["measure", "run"]));
    } catch (error) {
      say(textOf(error), true);
    }
  };
  const isOver = now.state === "ended";
  return (
    <section class="benchrun" aria-label="Run">
      <div class="bar">
        <b>{run.scenario}</b>
        {isOver ? <Badge tone={now.is_ok ? "good" : "bad"}>{now.is_ok ? "done" : "ended early"}</Badge> : <Badge tone="warn">{now.state}</Badge>}
        <span class="soft">started {ago(run.started)}</span>
        {now.result ? <a href={to(["measure", now.result])}>See the result</a> : null}
        <span class="spring" />
        {!isOver && mayStop ? (
          <button type="button" class="danger" onClick={() => void stop()}>
            {now.state === "stopping" ? "End at once" : "Stop"}
          </button>
        ) : null}
      </div>
      <p class="scan">{isOver ? "" : visible(now.progress ?? "starting …")}</p>
      <Failure problem={problem} />
      <details>
        <summary>Output</summary>
        <pre class="content" tabIndex={0}>
          {lines.map(visible).join("\n")}
        </pre>
      </details>
    </section>
  );
}
