/**
 * The address of the page is its state: the path names the page, the query holds filters, order, open dialogs and
 * views. Reloading or sharing an address shows the same thing.
 */
import { computed, signal } from "@preact/signals";

/** The parameters of a dialog. */
export const DIALOG = ["do", "partition", "name", "of", "topic"] as const;

/**
 * The dialogs that a link from elsewhere may open: they show something, or a form whose contents are not in the address.
 * All others open by the page's own buttons only, because a link could have chosen what they delete or change.
 */
const SHARED: readonly string[] = ["transaction", "explain", "create", "produce", "create-acl", "setting"];

/** An address that came from elsewhere, without a dialog that such an address may not open. */
export function fromElsewhere(address: string): string {
  const [path = "/", search = ""] = address.split("?", 2);
  const parameters = new URLSearchParams(search);
  const dialogs = parameters.getAll("do");
  if (dialogs.every((name) => SHARED.includes(name))) return address;
  for (const name of DIALOG) parameters.delete(name);
  const text = parameters.toString();
  return path + (text ? "?" + text : "");
}

/** Marks the entries of the history that this page has made. They keep their mark when they are reloaded. */
const OWN = { isOwn: true };

/** The address in the address bar, as it may be shown. */
function arrived(state: unknown): string {
  const address = location.pathname + location.search;
  if (state !== null && typeof state === "object" && "isOwn" in state) return address;
  const shown = fromElsewhere(address);
  if (shown !== address) history.replaceState(OWN, "", shown);
  return shown;
}

const current = signal(arrived(history.state));

/** Path segments, decoded. `/topics/a%2Fb` is `["topics", "a/b"]`. */
export const segments = computed(() => {
  const [path = "/"] = current.value.split("?");
  return path.split("/").filter(Boolean).map(decoded);
});

export const query = computed(() => {
  const [, search = ""] = current.value.split("?", 2);
  return new URLSearchParams(search);
});

/** The complete address, to come back to it after the login. */
export const here = computed(() => current.value);

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** An address of this page from its path segments and query. */
export function to(path: readonly string[], parameters: Record<string, string | number | null | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return "/" + path.map(encodeURIComponent).join("/") + (text ? "?" + text : "");
}

export function go(address: string, how: "push" | "replace" = "push"): void {
  if (address === current.peek()) return;
  if (how === "push") history.pushState(OWN, "", address);
  else history.replaceState(OWN, "", address);
  current.value = address;
}

/** Changes parameters of the current address. An empty value removes its parameter. */
export function setQuery(changes: Record<string, string | number | null>, how: "push" | "replace" = "replace"): void {
  const [path = "/"] = current.peek().split("?");
  const search = new URLSearchParams(query.peek());
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") search.delete(name);
    else search.set(name, String(value));
  }
  const text = search.toString();
  go(path + (text ? "?" + text : ""), how);
}

export function follow(): void {
  addEventListener("popstate", (event) => {
    current.value = arrived(event.state);
  });
  // Links stay ordinary links, so that they open in new tabs; only a plain click stays in this page.
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const href = link?.getAttribute("href");
    if (!link || !href?.startsWith("/") || href.startsWith("/api/") || link.target || link.hasAttribute("download")) return;
    event.preventDefault();
    go(href);
    scrollTo(0, 0);
  });
}
