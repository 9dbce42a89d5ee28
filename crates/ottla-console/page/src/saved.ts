/** Searches with a name, in the browser's storage: they belong to the browser, not to a user or a topic. */
import { signal } from "@preact/signals";

export interface SavedSearch {
  name: string;
  /** Of the address of the records page. */
  parameters: Record<string, string>;
}

const KEY = "ottla-searches";
export const MOST_SEARCHES = 50;
export const LONGEST_NAME = 60;

/** In the order of their names. */
export const searches = signal<SavedSearch[]>(stored());
// Another tab has changed them.
addEventListener("storage", (event) => {
  if (event.key === KEY || event.key === null) searches.value = stored();
});

/** Replaces the search of the same name. Returns why it cannot be saved, or null. */
export function save(search: SavedSearch): string | null {
  const others = searches.peek().filter((it) => it.name !== search.name);
  if (others.length >= MOST_SEARCHES) return `${MOST_SEARCHES} searches are saved; delete one first`;
  return write([...others, search].sort((one, other) => one.name.localeCompare(other.name)));
}

export function forgetSearch(name: string): string | null {
  return write(searches.peek().filter((it) => it.name !== name));
}

function write(changed: SavedSearch[]): string | null {
  try {
    localStorage.setItem(KEY, JSON.stringify(changed));
  } catch {
    return "the browser does not keep it: its storage is full, or turned off for this page";
  }
  searches.value = changed;
  return null;
}

/** Entries that are not searches are skipped: the user can edit the storage. */
function stored(): SavedSearch[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter(isSearch) : [];
  } catch {
    return [];
  }
}

function isSearch(it: unknown): it is SavedSearch {
  if (!it || typeof it !== "object" || !("name" in it) || !("parameters" in it)) return false;
  const { name, parameters } = it;
  return typeof name === "string" && !!parameters && typeof parameters === "object" && Object.values(parameters).every((value) => typeof value === "string");
}
