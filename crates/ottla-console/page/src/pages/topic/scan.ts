/**
 * Which records of a topic are asked for, as the address says it.
 */

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

export function plain(scan: Scan): Record<string, string> {
  const { follow, ...rest } = scan;
  return { ...rest, ...(follow ? { follow: "true" } : {}) };
}
