/** Requests to the console's server, as `openapi.yaml` describes them. */
import { signal } from "@preact/signals";

import { go, here, to } from "./address";
import type { Session } from "./wire";

/** An answer other than success. `detail` names the thing, the value and the way out. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string | null;
  /** The field of the body that it is about. */
  readonly field: string | null;

  constructor(status: number, detail: string, code: string | null = null, field: string | null = null) {
    super(detail);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

/** The logged-in user and what the console may do; null until it is known. */
export const session = signal<Session | null>(null);

/** The server takes no request without this header, which another site's page cannot set. */
const HEADERS = { "X-Ottla-Console": "1" };

export type Method = "GET" | "POST" | "PATCH" | "PUT" | "DELETE";

/** An address of the API. Segments are encoded; empty parameters are left out. */
export function api(segments: readonly (string | number)[], parameters: Record<string, string | number | boolean | null | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) search.set(name, String(value));
  }
  const text = search.toString();
  return "/api/" + segments.map((segment) => encodeURIComponent(String(segment))).join("/") + (text ? "?" + text : "");
}

export async function call<T>(method: Method, address: string, body?: unknown, abort?: AbortSignal): Promise<T> {
  const response = await send(method, address, body, abort);
  if (response.status === 204) return undefined as T;
  const text = await response.text();
  try {
    return (text ? JSON.parse(text) : undefined) as T;
  } catch {
    throw new Problem(502, `${address} answered with something other than JSON; a proxy may stand between`);
  }
}

export const get = <T>(address: string, abort?: AbortSignal): Promise<T> => call<T>("GET", address, undefined, abort);

async function send(method: Method, address: string, body: unknown, abort: AbortSignal | undefined): Promise<Response> {
  const init: RequestInit = { method, headers: { ...HEADERS }, credentials: "same-origin" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...HEADERS, "Content-Type": "application/json" };
  }
  if (abort) init.signal = abort;
  let response: Response;
  try {
    response = await fetch(address, init);
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Problem(0, "The console's server does not answer. Start it again, or check the network; this page tries again by itself.");
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.status === 401 && !here.peek().startsWith("/login")) go(to(["login"], { next: here.peek() }), "replace");
  throw problem;
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const said: unknown = await response.json();
    if (said && typeof said === "object" && "detail" in said && typeof said.detail === "string") {
      const text = (name: "code" | "field") => {
        const value = (said as Record<string, unknown>)[name];
        return typeof value === "string" ? value : null;
      };
      return new Problem(response.status, said.detail, text("code"), text("field"));
    }
  } catch {
    // Not JSON: the status has to do.
  }
  return new Problem(response.status, `The server answered ${response.status} ${response.statusText}`.trim());
}

export interface StreamEvent {
  name: string;
  data: unknown;
}

/**
 * Reads an event stream. `on` receives all events of one network read together, so that a fast stream costs one update
 * of the page and not one per record. Resolves at the end of the stream; aborting cancels the server's work.
 */
export async function stream(method: Method, address: string, body: unknown, abort: AbortSignal, on: (events: StreamEvent[]) => void): Promise<void> {
  const response = await send(method, address, body, abort);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop() ?? "";
    const events = blocks.map(eventOf).filter((event) => event !== null);
    if (events.length > 0) on(events);
  }
}

function eventOf(block: string): StreamEvent | null {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(line.startsWith("data: ") ? 6 : 5);
  }
  return data ? { name, data: JSON.parse(data) as unknown } : null;
}

/** The message for the user about any thrown value. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
