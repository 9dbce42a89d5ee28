/** The states of a page without data: loading, empty, failed. */
import type { ComponentChildren } from "preact";

import { type Problem, session } from "../api";
import { ago, visible } from "../format";

/** A failure, above the data that was loaded before it. */
export function Failure({ problem, at, retry }: { problem: Problem | null; at?: number; retry?: () => void }) {
  if (!problem) return null;
  return (
    <div class="failure" role="alert">
      <p>
        {visible(problem.message)}
        {problem.code && !problem.message.includes(problem.code) ? <code class="code">{problem.code}</code> : null}
        {at ? <span class="soft"> Shown is what was loaded {ago(at)}.</span> : null}
      </p>
      {retry ? (
        <button type="button" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="loading" aria-busy="true">
      Loading {what} …
    </p>
  );
}

/** An empty list: its meaning, and the next step. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="nothing">
      <h2>{title}</h2>
      <div>{children}</div>
    </div>
  );
}

/** For a list that may be empty only because of the user's rights. */
export function MayNotSee({ what }: { what: string }) {
  const user = session.value?.user;
  return user ? (
    <p>
      Only {what} that {visible(user)} may describe are shown: the ACLs of the cluster decide.
    </p>
  ) : null;
}

export type Tone = "good" | "warn" | "bad" | "quiet";

export function Badge({ tone = "quiet", title, children }: { tone?: Tone; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** A part of a whole as a bar, with its text beside it. */
export function Share({ part, label }: { part: number | null; label: string }) {
  const width = part === null ? 0 : Math.min(1, Math.max(0, part));
  return (
    <span class="share">
      <span class={width > 0.9 ? "track bad" : width > 0.75 ? "track warn" : "track"} aria-hidden="true">
        <span style={{ width: `${(width * 100).toFixed(1)}%` }} />
      </span>
      {label}
    </span>
  );
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
