import type { ComponentChildren } from "preact";

import { segments, to } from "../address";

/** The head of a page: its place and its actions. */
export function Head({ title, above, children }: { title: ComponentChildren; above?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="head">
      <div>
        {above ? <div class="above">{above}</div> : null}
        <h1>{title}</h1>
      </div>
      <div class="actions">{children}</div>
    </div>
  );
}

/** Parts of one thing, each with its own address. */
export function Tabs({ label, tabs }: { label: string; tabs: readonly { path: readonly string[]; name: string; count?: string }[] }) {
  const at = segments.value.join("/");
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <a key={tab.name} href={to(tab.path)} aria-current={tab.path.join("/") === at ? "page" : undefined}>
          {tab.name}
          {tab.count ? <span class="soft"> {tab.count}</span> : null}
        </a>
      ))}
    </nav>
  );
}
