/** Keys: single letters and `g` followed by a letter. Keys inside fields and with Ctrl, Alt or Meta are left alone. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

export interface Key {
  /** `/`, `?`, `g t`. */
  keys: string;
  does: string;
  run: () => void;
}

/** The keys that work now, for the list that `?` shows. */
export const bound = signal<Key[]>([]);

const PATIENCE_MS = 1200;
let prefix: { key: string; at: number } | null = null;

export function listen(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const target = event.target;
    if (target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))) return;
    if (document.querySelector("dialog[open]")) return;
    const isPrefixed = prefix !== null && event.timeStamp - prefix.at < PATIENCE_MS;
    const keys = isPrefixed ? `${prefix!.key} ${event.key}` : event.key;
    prefix = null;
    const found = bound.peek().findLast((key) => key.keys === keys);
    if (found) {
      event.preventDefault();
      found.run();
    } else if (bound.peek().some((key) => key.keys.startsWith(event.key + " "))) {
      prefix = { key: event.key, at: event.timeStamp };
    }
  });
}

/** Binds keys while the component is there. Later bindings of the same keys win. */
export function useKeys(keys: readonly Key[], on: readonly unknown[] = []): void {
  useEffect(() => {
    bound.value = [...bound.peek(), ...keys];
    return () => {
      bound.value = bound.peek().filter((key) => !keys.includes(key));
    };
  }, on);
}
