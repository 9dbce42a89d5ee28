import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

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

/** Scrolls a navigation to its current entry whenever that is another: a narrow screen shows only some of them. */
export function useCurrentInView(navigation: RefObject<HTMLElement | null>, current: string): void {
  useEffect(() => {
    navigation.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
}

/** Parts of one thing, each with its own address. */
export function Tabs({ label, tabs }: { label: string; tabs: readonly { path: readonly string[]; name: string; count?: string }[] }) {
  const at = segments.value.join("/");
  const navigation = useRef<HTMLElement>(null);
  // Counts that come later move it.
  useCurrentInView(navigation, at + tabs.map((tab) => (tab.count ? "+" : "-")).join(""));
  return (
    <nav class="tabs" aria-label={label} ref={navigation}>
      {tabs.map((tab) => (
        <a key={tab.name} href={to(tab.path)} aria-current={tab.path.join("/") === at ? "page" : undefined}>
          {tab.name}
          {tab.count ? <span class="soft"> {tab.count}</span> : null}
        </a>
      ))}
    </nav>
  );
}
