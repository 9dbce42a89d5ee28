/** Hooks that load from the API and keep it fresh. Data already seen is shown at once while it is loaded again. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { Problem, get, textOf } from "./api";
import type { List } from "./wire";

const KEPT = 60;
const seen = new Map<string, { data: unknown; at: number }>();

function remember(address: string, data: unknown): void {
  seen.delete(address);
  seen.set(address, { data, at: Date.now() });
  for (const oldest of seen.keys()) {
    if (seen.size <= KEPT) break;
    seen.delete(oldest);
  }
}

/** Forgets everything, at login and logout: another user may see other things. */
export function forget(): void {
  seen.clear();
}

export interface Loaded<T> {
  data: T | undefined;
  /** Why the newest attempt failed; `data` may still hold older data. */
  problem: Problem | null;
  at: number;
  reload: () => void;
}

/** Loads an address, again every `everyMs` while the page is visible. Loads nothing for `null`. */
export function useGet<T>(address: string | null, everyMs = 0): Loaded<T> {
  const [state, setState] = useState<{ address: string | null; data: T | undefined; problem: Problem | null; at: number }>({
    address: null,
    data: undefined,
    problem: null,
    at: 0,
  });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (address === null) return;
    const abort = new AbortController();
    let timer = 0;
    const load = async () => {
      try {
        if (!document.hidden || !seen.has(address)) {
          const data = await get<T>(address, abort.signal);
          remember(address, data);
          setState({ address, data, problem: null, at: Date.now() });
        }
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, textOf(error));
        const before = seen.get(address);
        setState({ address, data: before?.data as T | undefined, problem, at: before?.at ?? 0 });
      }
      if (everyMs > 0 && !abort.signal.aborted) timer = setTimeout(load, everyMs);
    };
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [address, everyMs, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  if (state.address === address) return { ...state, reload };
  const before = address === null ? undefined : seen.get(address);
  return { data: before?.data as T | undefined, problem: null, at: before?.at ?? 0, reload };
}

const PAGE = 200;

export interface LoadedList<T> {
  total: number | undefined;
  row: (index: number) => T | undefined;
  /** Rows from (inclusive) to (exclusive) are on the screen. */
  need: (from: number, to: number) => void;
  problem: Problem | null;
  reload: () => void;
}

/** A long list that the server sorts and searches, loaded by pages as they come into view. */
export function useList<T>(address: string, everyMs = 0): LoadedList<T> {
  const key = "list " + address;
  const pages = useRef<{ key: string; total: number | undefined; rows: Map<number, T[]> }>({ key: "", total: undefined, rows: new Map() });
  const view = useRef<[number, number]>([0, PAGE]);
  const loading = useRef(new Set<number>());
  const abort = useRef(new AbortController());
  const [problem, setProblem] = useState<Problem | null>(null);
  const [, redraw] = useState(0);

  const loadPage = async (page: number) => {
    if (loading.current.has(page)) return;
    loading.current.add(page);
    const mine = abort.current;
    const parameters = `limit=${PAGE}&offset=${page * PAGE}`;
    try {
      const list = await get<List<T>>(address + (address.includes("?") ? "&" : "?") + parameters, mine.signal);
      if (mine !== abort.current) return;
      if (pages.current.key !== key) pages.current = { key, total: list.total, rows: new Map() };
      pages.current.total = list.total;
      pages.current.rows.set(page, list.items);
      if (page === 0) remember(key, list);
      setProblem(null);
    } catch (error) {
      if (mine !== abort.current) return;
      setProblem(error instanceof Problem ? error : new Problem(0, textOf(error)));
    }
    loading.current.delete(page);
    redraw((before) => before + 1);
  };

  const loadView = (isAgain: boolean) => {
    const [from, to] = view.current;
    const total = pages.current.key === key ? pages.current.total : undefined;
    const last = Math.floor(Math.max(0, Math.min(to, total ?? PAGE) - 1) / PAGE);
    for (let page = Math.floor(from / PAGE); page <= last; page += 1) {
      const has = pages.current.key === key && pages.current.rows.has(page);
      if (isAgain || !has) void loadPage(page);
    }
  };

  useEffect(() => {
    abort.current = new AbortController();
    loading.current.clear();
    const first = seen.get(key)?.data as List<T> | undefined;
    if (first) {
      pages.current = { key, total: first.total, rows: new Map([[0, first.items]]) };
      redraw((before) => before + 1);
    }
    view.current = [0, PAGE];
    setProblem(null);
    loadView(true);
    const timer = everyMs > 0 ? setInterval(() => document.hidden || loadView(true), everyMs) : 0;
    return () => {
      abort.current.abort();
      abort.current = new AbortController();
      clearInterval(timer);
    };
  }, [key, everyMs]);

  return {
    // The rows of the previous search stay until the new ones are there.
    total: pages.current.total,
    row: (index) => pages.current.rows.get(Math.floor(index / PAGE))?.[index % PAGE],
    need: (from, to) => {
      view.current = [from, to];
      loadView(false);
    },
    problem,
    reload: () => {
      const [from] = view.current;
      const kept = Math.floor(from / PAGE);
      for (const page of [...pages.current.rows.keys()]) if (Math.abs(page - kept) > 1) pages.current.rows.delete(page);
      // A request that is under way may have been answered before the change that is to be seen.
      abort.current.abort();
      abort.current = new AbortController();
      loading.current.clear();
      loadView(true);
    },
  };
}
