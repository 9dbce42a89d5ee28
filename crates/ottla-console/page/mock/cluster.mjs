// The made-up cluster of the mock: a small one to work with, and very long lists to measure with. Everything follows
// from its index, so that two runs show the same.

const MINUTE = 60_000;
export const START = Date.now();

/** Names and contents that try to break the page, or to run a script in it. */
export const HOSTILE = [
  '<img src=x onerror="document.title=\'broken\'">',
  "\u202Etxt.exe\u202C <script>document.title='broken'</script>",
  "Z\u0351\u036B\u0343\u036A\u0342\u036B\u033D\u034F\u0334\u0319\u0324\u031E\u0349\u035A\u032F\u031E\u0320\u034Da\u036B\u0357\u0334\u0362\u0335\u031C\u0330\u0354l\u0368\u0367\u0369\u0358\u0320g\u0311\u0357\u030E\u0305\u035B\u0341\u0334\u033B\u0348\u034D\u0354\u0339o",
  "line one\nline two\u0000\u001b[31mred\u2028next",
  "x".repeat(3000),
  "javascript:alert(1)//\"'><svg onload=alert(1)>{{7*7}}",
];

const small = [
  ["orders", 12, 3, 48_200_000, 12_400, "delete", 604_800_000],
  ["orders.dlq", 3, 3, 1_284, 0.2, "delete", 1_209_600_000],
  ["payments", 24, 3, 9_120_000, 3_200, "delete", 604_800_000],
  ["customers", 12, 3, 812_400, 42, "compact", -1],
  ["clickstream.web.v2", 96, 3, 4_212_000_000, 184_000, "delete", 86_400_000],
  ["inventory-changes", 6, 3, 0, 0, "compact,delete", 259_200_000],
  ["audit", 1, 3, 77_120, 4, "delete", -1],
];

export const groups = [
  { group_id: "billing", type: "consumer", state: "Stable", topics: ["orders", "payments"], lag: 1_204, members: 3 },
  { group_id: "warehouse-sync", type: "classic", state: "Empty", topics: ["orders"], lag: 2_480_112, members: 0 },
  {
    group_id: "fraud-detection",
    type: "streams",
    state: "Reconciling",
    topics: ["payments"],
    lag: 18_400,
    members: 2,
    topology: {
      epoch: 3,
      subtopologies: [
        { id: "0", source_topics: ["payments"], repartition_source_topics: [], state_changelog_topics: [] },
        { id: "1", source_topics: [], repartition_source_topics: ["fraud-detection-by-card-repartition"], state_changelog_topics: ["fraud-detection-counts-changelog"] },
      ],
    },
  },
  // Its name turns what follows it around.
  { group_id: "re\u202Everse", type: "classic", state: "Empty", topics: ["audit"], lag: 0, members: 0 },
  { group_id: "mail-senders", type: "share", state: "Stable", topics: ["orders"], lag: 12, members: 6 },
  { group_id: "analytics-" + "nightly-".repeat(9), type: "classic", state: "PreparingRebalance", topics: ["clickstream.web.v2"], lag: 98_000_000, members: 14 },
];

export const topics = new Map(
  small.map(([name, partitions, replication_factor, records, rate, policy, retention]) => [
    name,
    {
      name,
      id: Buffer.from(name.padEnd(16, ".")).toString("base64url").slice(0, 22),
      is_internal: false,
      partitions,
      replication_factor,
      under_replicated: name === "payments" ? 2 : 0,
      offline: 0,
      bytes: records * 310 * 3,
      records,
      records_per_second: rate,
      records_out_per_second: Math.round(rate * 0.95),
      retention_ms: retention,
      retention_bytes: -1,
      cleanup_policy: policy,
      ...groupsOf(name),
    },
  ]),
);

function groupsOf(topic) {
  const found = groups.filter((group) => group.topics.includes(topic)).sort((a, b) => b.lag - a.lag);
  return { groups: found.map(({ group_id, type, state, lag }) => ({ group_id, type, state, lag })), group_count: found.length, lag: found[0]?.lag ?? null };
}

export function partitionsOf(topic) {
  const each = Math.floor(topic.records / topic.partitions);
  return Array.from({ length: topic.partitions }, (_, partition) => {
    const replicas = [1, 2, 3].map((_, index) => ((partition + index) % 3) + 1).slice(0, topic.replication_factor);
    const isBehind = partition < topic.under_replicated;
    const start = topic.cleanup_policy === "compact" ? 0 : 1_000_000 * (partition + 1);
    return {
      partition,
      leader: replicas[0],
      replicas,
      isr: isBehind ? replicas.slice(0, -1) : replicas,
      elr: [],
      log_start_offset: start,
      log_end_offset: start + each,
      last_stable_offset: start + each,
      bytes: each * 310,
      latest_timestamp: each > 0 ? START - partition * 1000 : null,
    };
  });
}

/** The topic with this index of a list without end. */
export function manyTopics(index) {
  const name = `tenant-${String(index % 997).padStart(3, "0")}.events.${String(index).padStart(6, "0")}`;
  const records = (index * 7919) % 5_000_000;
  return {
    ...topics.get("audit"),
    name,
    id: name.slice(-22),
    partitions: 1 + (index % 12),
    records,
    bytes: records * 420,
    records_per_second: index % 50,
    records_out_per_second: index % 40,
    retention_ms: 604_800_000,
    groups: [],
    group_count: 0,
    lag: null,
  };
}

export const brokers = [1, 2, 3].map((id) => ({
  id,
  host: `kafka-${id}.example.net`,
  port: 9092,
  rack: `zone-${"abc"[id - 1]}`,
  is_fenced: false,
  leaders: 52 + id,
  replicas: 154,
  bytes: 1_310_000_000_000 + id * 8_000_000_000,
  log_dirs: 2,
  offline_log_dirs: 0,
  total_bytes: 2_000_000_000_000,
  usable_bytes: [640_000_000_000, 620_000_000_000, 90_000_000_000][id - 1],
}));

export function cluster() {
  const node = (id, lag) => ({ id, log_end_offset: 184_220 - lag, lag, last_fetch: Date.now() - 90, last_caught_up: Date.now() - 400 });
  return {
    as_of: Date.now(),
    cluster_id: "Q2V-dLXfRU6Vb8mWcNtJxA",
    health: "warning",
    sentence: "2 of 154 partitions are under-replicated; all have a leader and accept writes.",
    attention: [
      { severity: "critical", text: "Broker 3 has 90 GB of 2 TB free, and fills in 11 hours at the present rate", link: { kind: "broker", name: "3", partition: null } },
      { severity: "warning", text: "2 partitions of topic payments are under-replicated", link: { kind: "topic", name: "payments", partition: null } },
      { severity: "warning", text: "Group warehouse-sync has no members and a lag of 2,480,112 records", link: { kind: "group", name: "warehouse-sync", partition: null } },
      { severity: "warning", text: "The transaction of invoice-writer-7 is open for 14 minutes", link: { kind: "transaction", name: "invoice-writer-7", partition: null } },
    ],
    attention_total: 4,
    brokers,
    quorum: { leader: 1, leader_epoch: 42, high_watermark: 184_218, voters: [node(1, 0), node(2, 1), node(3, 2)], observers: [] },
    features: [
      { name: "metadata.version", level: 29 },
      { name: "kraft.version", level: 1 },
      { name: "transaction.version", level: 2 },
      { name: "share.version", level: 1 },
    ],
    totals: { topics: topics.size, partitions: 154, under_replicated: 2, under_min_isr: 0, offline: 0, bytes: 3_978_000_000_000, records: 4_271_000_000, groups: groups.length, lag: 100_499_728, records_per_second: 199_646 },
  };
}

/** Columns of two hours, one sample a minute. */
export function series(of, lastMs) {
  const length = Math.min(120, Math.max(2, Math.round(lastMs / MINUTE)));
  const times = Array.from({ length }, (_, index) => START - (length - 1 - index) * MINUTE);
  const wave = (scale, period, offset) => times.map((_, index) => Math.round(scale * (1 + 0.35 * Math.sin((index + offset) / period) + 0.08 * Math.sin(index * 1.7))));
  const line = (name, unit, values) => ({ name, unit, values });
  const all =
    of === "cluster"
      ? [line("records_in", "records/s", wave(199_000, 17, 3)), line("records_out", "records/s", wave(188_000, 19, 9)), line("disk/1", "share", times.map(() => 0.91)), line("disk/2", "share", times.map(() => 0.62)), line("disk/3", "share", times.map(() => 0.6)), line("latency/Produce p50", "ms", wave(1_800, 11, 2).map((it) => it / 1000)), line("latency/Produce p99", "ms", wave(9_400, 8, 5).map((it) => it / 1000)), line("bytes", "bytes", times.map((_, index) => 3.9e12 + index * 6e8)), line("lag", "records", wave(1e8, 29, 8)), line("under_replicated", "partitions", times.map((_, index) => (index > length - 18 ? 2 : 0)))]
      : of.startsWith("group/")
        ? [line("lag", "records", wave(2_400, 9, 2)), line("lag/orders", "records", wave(1_200, 7, 1)), line("lag/payments", "records", wave(700, 13, 5)), ...Array.from({ length: 12 }, (_, partition) => line(`partition_lag/orders-${partition}`, "records", wave(40 + 20 * partition, 7 + partition, partition)))]
        : [line("records_in", "records/s", wave(12_400, 15, 4)), line("records_out", "records/s", wave(11_900, 13, 6)), line("bytes", "bytes", times.map((_, index) => 4.4e10 + index * 3e7))];
  return { interval_ms: MINUTE, is_full: false, has_latencies: true, times, series: all };
}

const setting = (name, value, source, type, documentation, otherwise = value) => ({
  name,
  value,
  source,
  is_default: source === "default",
  is_read_only: source === "static_broker" && /^(node|log\.dirs|process)/.test(name),
  is_sensitive: type === "password",
  type,
  documentation,
  synonyms: source === "default" ? [{ name, value, source }] : [{ name, value, source }, { name: "log." + name, value: otherwise, source: "default" }],
});

const topicSettings = () => [
  setting("cleanup.policy", "delete", "default", "list", "What happens to old segments: <code>delete</code> removes them, <code>compact</code> keeps the newest record of each key."),
  setting("retention.ms", "604800000", "default", "long", "How long records are kept, if the cleanup policy is <b>delete</b>."),
  setting("retention.bytes", "-1", "default", "long", "The size up to which a partition grows before its oldest segments are deleted."),
  setting("max.message.bytes", "1048588", "default", "int", "The largest batch of records that is accepted."),
  setting("min.insync.replicas", "2", "default_broker", "int", "How many replicas must have a record before a producer with acks=all is answered.", "1"),
  setting("segment.bytes", "1073741824", "default", "int", "The size of a segment file."),
  setting("compression.type", "producer", "default", "string", "The compression in which records are stored."),
  setting("message.timestamp.type", "CreateTime", "default", "string", "Whether a record has the time of its creation or of its append."),
];
const brokerSettings = () => [
  setting("node.id", "1", "static_broker", "int", "The node's ID."),
  setting("log.dirs", "/var/lib/ottla/a,/var/lib/ottla/b", "static_broker", "list", "The log directories."),
  setting("log.retention.hours", "168", "default", "int", "How many hours records are kept."),
  setting("num.partitions", "1", "default", "int", "The partitions of a topic that is created without a number."),
  setting("ssl.keystore.password", null, "static_broker", "password", "The password of the key store."),
  setting("log.cleaner.threads", "2", "default_broker", "int", "Threads that compact logs.", "1"),
  setting("auto.create.topics.enable", "true", "default", "boolean", "Whether topics are created when a client asks for them."),
];
export const settings = new Map();
export function settingsOf(what) {
  if (!settings.has(what)) settings.set(what, what.startsWith("broker") ? brokerSettings() : topicSettings());
  return settings.get(what);
}

export const transactions = [
  { transactional_id: "invoice-writer-7", state: "Ongoing", producer_id: 4_112, producer_epoch: 3, coordinator: 2, timeout_ms: 900_000, started: START - 14 * MINUTE, topics: [{ topic: "payments", partitions: [0, 3, 7] }] },
  { transactional_id: "orders-copier-0", state: "Ongoing", producer_id: 4_200, producer_epoch: 0, coordinator: 1, timeout_ms: 60_000, started: START - 800, topics: [{ topic: "orders", partitions: [1] }] },
  { transactional_id: "orders-copier-1", state: "CompleteCommit", producer_id: 4_201, producer_epoch: 0, coordinator: 1, timeout_ms: 60_000, started: null, topics: [] },
];
export const acls = [
  { resource_type: "topic", resource_name: "orders", pattern_type: "prefixed", principal: "User:billing", host: "*", operation: "read", permission: "allow" },
  { resource_type: "group", resource_name: "billing", pattern_type: "literal", principal: "User:billing", host: "*", operation: "read", permission: "allow" },
  { resource_type: "topic", resource_name: "audit", pattern_type: "literal", principal: "User:*", host: "*", operation: "write", permission: "deny" },
];
export const users = [
  { user: "alice", credentials: [{ mechanism: "SCRAM-SHA-512", iterations: 8192 }] },
  { user: "billing", credentials: [{ mechanism: "SCRAM-SHA-256", iterations: 4096 }, { mechanism: "SCRAM-SHA-512", iterations: 8192 }] },
];
export const quotas = [
  { entity: { user: "analytics" }, quotas: { consumer_byte_rate: 52_428_800, request_percentage: 40 } },
  { entity: { "client-id": null }, quotas: { producer_byte_rate: 10_485_760 } },
  { entity: { ip: "10.4.0.9" }, quotas: { connection_creation_rate: 20 } },
];
export const reassignments = [{ topic: "clickstream.web.v2", partition: 17, replicas: [1, 2, 3], adding: [3], removing: [1], bytes: 48_000_000_000, copied_bytes: 31_000_000_000 }];
