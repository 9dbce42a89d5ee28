/** Unsent forms survive a reload: their fields are kept for the life of the tab. Never used for passwords. */
import { useCallback, useState } from "preact/hooks";

export function useDraft<T extends object>(name: string, initial: T): [T, (change: Partial<T>) => void, () => void] {
  const key = "draft " + name;
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
