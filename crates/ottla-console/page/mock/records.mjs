// Records of the mock, and its event streams.
import { HOSTILE, START } from "./cluster.mjs";

const CITIES = ["Helsinki", "Oslo", "Porto", "Lyon", "Graz"];
/** Produced through the page; shown after the made-up ones. */
export const produced = new Map();

const data = (text, format, most) => ({ format, text: text.slice(0, most), bytes: Buffer.byteLength(text), cut: text.length > most, problem: null });

/** The record with this index; `hostile` is a topic of contents that try to break the page. */
export function record(topic, index, format = "auto", most = 2048) {
  const value =
    topic === "hostile"
      ? HOSTILE[index % HOSTILE.length]
      : JSON.stringify({ order_id: 9007199254740993 + 2 * index, customer: `c-${(index * 7919) % 1000}`, city: CITIES[index % CITIES.length], total: ((index * 37) % 20000) / 100, lines: [{ sku: `S${index % 90}`, n: 1 + (index % 4) }], express: index % 3 === 0 })
          // A number that JavaScript would round.
          .replace(/"order_id":\d+/, `"order_id":${BigInt("9007199254740993") + BigInt(2 * index)}`);
  const shown = format === "avro" ? { ...data(value, "avro", most), schema: { id: "7", type: "avro", subject: `${topic}-value` } } : format === "hex" ? data(Buffer.from(value).toString("hex"), "hex", most) : data(value, topic === "hostile" || format === "text" ? "text" : "json", most);
  const key = `c-${(index * 7919) % 1000}`;
  return {
    partition: index % 3,
    offset: 1_000_000 + Math.floor(index / 3),
    timestamp: START - 3_600_000 + index * 3,
    timestamp_type: "create_time",
    key: index % 11 === 0 ? null : format === "hex" ? data(Buffer.from(key).toString("hex"), "hex", most) : data(key, "text", most),
    value: index % 29 === 28 && topic !== "hostile" ? null : shown,
    headers: index % 2 === 0 ? [{ key: topic === "hostile" ? HOSTILE[0] : "source", value: data(topic === "hostile" ? HOSTILE[1] : "web", "text", most) }] : [],
  };
}

export function events(response) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  let isOpen = true;
  response.on("close", () => (isOpen = false));
  return { send: (name, value) => isOpen && response.write(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`), end: () => response.end(), isOpen: () => isOpen };
}

const progress = (began, scanned, matched, rest = {}) => {
  const elapsed_ms = Math.max(1, Date.now() - began);
  return { scanned, scanned_bytes: scanned * 310, matched, skipped: 0, sent: null, fraction: null, records_per_second: (scanned / elapsed_ms) * 1000, bytes_per_second: ((scanned * 310) / elapsed_ms) * 1000, elapsed_ms, next: null, ...rest };
};

/** A page, a search with progress, or a tail of 100,000 records as fast as they are read. */
export function streamRecords(response, topic, total, parameters) {
  const { send, end, isOpen } = events(response);
  const began = Date.now();
  const format = parameters.get("format") ?? "auto";
  const limit = Number(parameters.get("limit") ?? 100);
  const text = (parameters.get("text") ?? "").toLowerCase();
  if (parameters.get("follow") === "true") {
    let index = 0;
    const burst = topic === "flood" ? 2_000 : 2;
    const timer = setInterval(() => {
      if (!isOpen()) return clearInterval(timer);
      send("records", Array.from({ length: burst }, () => record(topic, total + index++, format, 512)));
      if (index % (burst * 5) === 0) send("progress", progress(began, index * 900, index, { skipped: index * 899, records_per_second: 50_000, bytes_per_second: 15_500_000 }));
    }, 50);
    return;
  }
  const mine = produced.get(topic) ?? [];
  const matches = (it) => !text || JSON.stringify(it).toLowerCase().includes(text);
  const from = parameters.get("from") ?? "end";
  let index = from.startsWith("last:") ? Math.max(0, total - Number(from.slice(5))) : from.startsWith("page:") ? Number(from.slice(5)) : from.startsWith("offset:") ? Math.min(total, 3 * (Number(from.slice(7)) - 1_000_000)) : from === "end" ? total : 0;
  const first = index;
  let matched = 0;
  const step = () => {
    if (!isOpen()) return;
    const found = [];
    for (const stop = Math.min(total, index + 4_000); index < stop && matched + found.length < limit; index += 1) {
      const it = record(topic, index, format);
      if (matches(it)) found.push(it);
    }
    matched += found.length;
    if (found.length > 0) send("records", found);
    if (index >= total || matched >= limit) {
      const own = index >= total ? mine.filter(matches).slice(0, limit - matched) : [];
      if (own.length > 0) send("records", own);
      send("done", progress(began, index - first + own.length, matched + own.length, { fraction: 1, next: index < total ? `page:${index}` : null }));
      return end();
    }
    send("progress", progress(began, index - first, matched, { fraction: index / total }));
    setTimeout(step, topic === "slow" ? 200 : 5);
  };
  step();
}

/** The records of the topic that is read slowly. */
const SLOW = 200_000;

export function redrive(response, total, body) {
  const { send, end } = events(response);
  const began = Date.now();
  const matched = body.records?.length ?? total;
  send("progress", progress(began, Math.ceil(matched / 2), Math.ceil(matched / 2)));
  const ranges = [{ partition: 0, start: 1_000_000, end: 1_000_000 + matched }];
  const outcome = (sent, left) => progress(began, matched, matched, { sent, topic_id: "made-up", token: left.length > 0 ? "made-up-too" : null, ranges: left, unknown: [], unknown_records: 0 });
  const timer = setTimeout(() => {
    // A topic of this name takes half of it, and the rest at the next try.
    const isHalf = body.to === "flaky" && !body.preview && body.ranges?.[0]?.start === 1_000_000;
    const half = Math.floor(matched / 2);
    if (isHalf) {
      send("progress", outcome(half, [{ ...ranges[0], start: 1_000_000 + half }]));
      send("problem", { title: "The cluster is not ready", status: 502, detail: "partition 0, offset 1000213: no leader took it" });
    } else if (body.preview) send("done", outcome(0, ranges));
    else send("done", outcome(body.to === "flaky" ? matched - half : matched, []));
    end();
  }, total === SLOW ? 60_000 : 30);
  response.on("close", () => clearTimeout(timer));
}
