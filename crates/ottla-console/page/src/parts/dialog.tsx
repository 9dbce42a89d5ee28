/**
 * Dialogs. Which one is open is part of the address (`?do=…`), so that reloading keeps it open; `address.ts` says which
 * ones a link from elsewhere may open. A dialog that changes something dangerous shows what will happen in numbers, and
 * takes the name of the thing before it acts.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

import { DIALOG, query, setQuery } from "../address";
import { session, textOf } from "../api";
import { visible } from "../format";

export const openDialog = (name: string, parameters: Record<string, string | number | null> = {}): void => setQuery({ do: name, ...parameters }, "push");
export const closeDialog = (): void => setQuery(Object.fromEntries(DIALOG.map((name) => [name, null])));
export const isDialogOpen = (name: string): boolean => query.value.get("do") === name;

interface Props {
  title: string;
  /** The text of the button: `Delete topic`. Without it there is only `Close`. */
  action?: string;
  isDangerous?: boolean;
  /** The name that must be typed before the action is possible. */
  typed?: string;
  isReady?: boolean;
  isWide?: boolean;
  /** Does it. The dialog closes when the promise resolves, unless that resolves to `"stay"`. */
  run?: () => Promise<void | "stay">;
  /** Ends `run` early. Without it, a run cannot be stopped. */
  stop?: () => void;
  onClose?: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, action, isDangerous = false, typed, isReady = true, isWide = false, run, stop, onClose = closeDialog, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [name, setName] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  // A name with characters that nobody can type is confirmed as it is shown.
  const isNamed = typed === undefined || name === typed || name === visible(typed);
  const mayStop = isBusy && stop !== undefined;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!run || !isReady || !isNamed || isBusy) return;
    setBusy(true);
    setProblem(null);
    try {
      if ((await run()) !== "stay") {
        onClose();
        return;
      }
    } catch (error) {
      setProblem(textOf(error));
    }
    setBusy(false);
  };
  const isReadOnly = Boolean(action) && (session.value?.read_only ?? false);
  return (
    <dialog
      ref={element}
      class={isWide ? "wide" : undefined}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        if (!isBusy) onClose();
      }}
    >
      <form onSubmit={submit} autocomplete="off">
        <h2 id={heading}>{visible(title)}</h2>
        <div class="body">{children}</div>
        {typed !== undefined ? (
          <label class="field">
            <span>
              Type <b class="quote">{visible(typed)}</b> to confirm
            </span>
            <input value={name} onInput={(event) => setName(event.currentTarget.value)} spellcheck={false} autocapitalize="off" data-confirm="" />
          </label>
        ) : null}
        {problem ? (
          <p class="failure" role="alert">
            {visible(problem)}
          </p>
        ) : null}
        {isReadOnly ? <p class="hint">The console runs in read-only mode.</p> : null}
        <footer>
          <button type="button" onClick={mayStop ? stop : onClose} disabled={isBusy && !mayStop}>
            {mayStop ? "Stop" : action ? "Cancel" : "Close"}
          </button>
          {action ? (
            <button type="submit" class={isDangerous ? "primary danger" : "primary"} disabled={!isReady || !isNamed || isBusy || isReadOnly}>
              {isBusy ? "Working …" : action}
            </button>
          ) : null}
        </footer>
      </form>
    </dialog>
  );
}

/** A button that opens a dialog; in read-only mode it is not there. */
export function Opens({ dialog, parameters, isDangerous = false, label, children }: { dialog: string; parameters?: Record<string, string | number | null>; isDangerous?: boolean; label?: string; children: ComponentChildren }) {
  if (session.value?.read_only) return null;
  return (
    <button type="button" class={isDangerous ? "danger" : undefined} aria-label={label} onClick={() => openDialog(dialog, parameters)}>
      {children}
    </button>
  );
}
