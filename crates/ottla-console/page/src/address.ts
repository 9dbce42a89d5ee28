/**
 * The address of the page is its state: the path names the page, the query holds filters, order, open dialogs and
 * views. Reloading or sharing an address shows the same thing.
 */
import { computed, signal } from "@preact/signals";

const current = signal(location.pathname + location.search);

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
  if (how === "push") history.pushState(null, "", address);
  else history.replaceState(null, "", address);
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
  addEventListener("popstate", () => {
    current.value = location.pathname + location.search;
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
