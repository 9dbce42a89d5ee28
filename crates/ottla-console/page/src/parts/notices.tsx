/** Short messages about completed actions, read out by screen readers, gone after some seconds. */
import { signal } from "@preact/signals";

import { visible } from "../format";

interface Notice {
  id: number;
  text: string;
  isBad: boolean;
}

const SHOWN_MS = 6000;
const notices = signal<Notice[]>([]);
let last = 0;

export function say(text: string, isBad = false): void {
  last += 1;
  const id = last;
  notices.value = [...notices.peek().slice(-3), { id, text, isBad }];
  setTimeout(() => dismiss(id), isBad ? SHOWN_MS * 2 : SHOWN_MS);
}

function dismiss(id: number): void {
  notices.value = notices.peek().filter((notice) => notice.id !== id);
}

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <div key={notice.id} class={notice.isBad ? "notice bad" : "notice"}>
          <span>{visible(notice.text)}</span>
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
