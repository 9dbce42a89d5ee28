/**
 * Which records of a topic are asked for, as the address says it.
 */
import { time } from "../../format";

export interface Scan {
  from: string;
  until: string;
  partitions: string;
  follow: boolean;
  limit: string;
  rate: string;
  format: string;
  isolation: string;
  text: string;
  key: string;
  json_path: string;
  expression: string;
}

/** The request in the address. */
export function scanOf(parameters: URLSearchParams): Scan {
  const text = (name: string, otherwise = "") => parameters.get(name) ?? otherwise;
  const follow = text("follow") === "true";
  return {
    from: text("from", follow ? "end" : "last:100"),
    until: text("until"),
    partitions: text("partitions"),
    follow,
    limit: text("limit"),
    rate: text("rate"),
    format: text("format"),
    isolation: text("isolation"),
    text: text("text"),
    key: text("key"),
    json_path: text("json_path"),
    expression: text("expression"),
  };
}

export const isFiltered = (scan: Scan): boolean => Boolean(scan.text || scan.key || scan.json_path || scan.expression);

/** The place of the records in the topic, in words: `from offset 7 to 2026-03-01 14:05:09.123, in partitions 0,2`. */
export function placeText({ from, until, partitions }: Scan): string {
  const place = (text: string): string => {
    const [, kind, value = ""] = /^(\w+):(.*)$/.exec(text) ?? [];
    switch (kind) {
      case "offset":
        return `offset ${value}`;
      case "timestamp":
        return time(Number(value));
      default:
        return `the ${text}`;
    }
  };
  const start = from.startsWith("last:") ? `among the newest ${from.slice("last:".length)}` : `from ${place(from)}`;
  return `${start}${until ? ` to ${place(until)}` : ""}${partitions ? `, in partitions ${partitions}` : ""}`;
}

export function plain(scan: Scan): Record<string, string> {
  const { follow, ...rest } = scan;
  return { ...rest, ...(follow ? { follow: "true" } : {}) };
}
