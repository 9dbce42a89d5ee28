/** Unsent forms survive a reload: their fields are kept for the life of the tab. Never used for passwords. */
import { useCallback, useEffect, useState } from "preact/hooks";

const PREFIX = "draft ";
/** Where the tab remembers whose drafts it has. */
const OWNER = "drafts of";

/** Deletes the drafts of the tab, at the logout. */
export function dropDrafts(): void {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
}

/** Deletes the drafts of the tab if they are of another user. Those of the same user outlive the end of the session. */
export function keepDraftsOf(user: string | null): void {
  const owner = user ?? "";
  if ((sessionStorage.getItem(OWNER) ?? "") === owner) return;
  dropDrafts();
  sessionStorage.setItem(OWNER, owner);
}

/** The new value of something, in a dialog: it survives a reload, but not the dialog, because the old value may be another the next time. */
export function useEdit(name: string, initial: string): [string, (text: string) => void] {
  const [{ text }, change, drop] = useDraft(name, { text: initial });
  useEffect(() => drop, []);
  return [text, (next) => change({ text: next })];
}

export function useDraft<T extends object>(name: string, initial: T): [T, (change: Partial<T>) => void, () => void] {
  const key = PREFIX + name;
  const [value, setValue] = useState<T>(() => {
    try {
      const kept: unknown = JSON.parse(sessionStorage.getItem(key) ?? "null");
      return kept && typeof kept === "object" ? { ...initial, ...kept } : initial;
    } catch {
      return initial;
    }
  });
  const change = useCallback(
    (part: Partial<T>) =>
      setValue((before) => {
        const after = { ...before, ...part };
        try {
          sessionStorage.setItem(key, JSON.stringify(after));
        } catch {
          // The store is full: the form works, and only a reload would lose it.
        }
        return after;
      }),
    [key],
  );
  const drop = useCallback(() => sessionStorage.removeItem(key), [key]);
  return [value, change, drop];
}
