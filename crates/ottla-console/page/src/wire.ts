/** The shapes of `openapi.yaml`, which documents each field. `null` is a value that the cluster does not report. */

type Maybe<T> = T | null;

export interface Session {
  version: string;
  bootstrap_servers: string;
  login: "none" | "required" | "done";
  user: Maybe<string>;
  mechanisms: string[];
  /** The host of the identity provider. */
  oidc?: Maybe<string>;
  read_only: boolean;
  /** Whether the console has a schema registry. */
  registry?: boolean;
}

export interface List<T> {
  total: number;
  as_of?: number;
  items: T[];
}

export interface Attention {
  severity: "warning" | "critical";
  text: string;
  link: { kind: "topic" | "group" | "broker" | "transaction" | "cluster"; name: string; partition: Maybe<number> };
}

export interface QuorumNode {
  id: number;
  log_end_offset: number;
  lag: number;
  last_fetch: Maybe<number>;
  last_caught_up: Maybe<number>;
}

export interface BrokerRow {
  id: number;
  host: string;
  port: number;
  rack: Maybe<string>;
  is_fenced: boolean;
  leaders: number;
  replicas: number;
  bytes: Maybe<number>;
  log_dirs: Maybe<number>;
  offline_log_dirs: Maybe<number>;
  total_bytes: Maybe<number>;
  usable_bytes: Maybe<number>;
}

export interface Broker extends BrokerRow {
  dirs: LogDir[];
  api_versions: { api: string; min: number; max: number }[];
  /** Only of the broker beside which the console runs. */
  activity: Maybe<{ connections: { listener: string; open: number }[]; requests: RequestTimes[]; slow_requests: SlowRequest[] }>;
}

export interface SlowRequest {
  api: string;
  api_version: number;
  sent: number;
  client_id: string;
  principal: string;
  peer: string;
  error: Maybe<string>;
  total_ms: number;
  local_ms: number;
  remote_ms: number;
  response_send_ms: number;
}

export interface RequestTimes {
  api: string;
  count: number;
  p50_ms: number;
  p99_ms: number;
  own_p99_ms: number;
}

export interface LogDir {
  path: string;
  problem: Maybe<string>;
  total_bytes: Maybe<number>;
  usable_bytes: Maybe<number>;
  is_cordoned: boolean;
  bytes: number;
  replicas: number;
  largest: { topic: string; partition: number; bytes: number; offset_lag: number; is_future: boolean }[];
}

export interface Cluster {
  as_of: number;
  cluster_id: Maybe<string>;
  health: "ok" | "warning" | "critical";
  sentence: string;
  attention: Attention[];
  attention_total: number;
  brokers: BrokerRow[];
  quorum: Maybe<{ leader: number; leader_epoch: number; high_watermark: number; voters: QuorumNode[]; observers: QuorumNode[] }>;
  features: { name: string; level: number }[];
  totals: {
    topics: number;
    partitions: number;
    under_replicated: number;
    under_min_isr: number;
    offline: number;
    bytes: Maybe<number>;
    records: Maybe<number>;
    groups: Maybe<number>;
    lag: Maybe<number>;
    records_per_second: Maybe<number>;
  };
}

export interface Series {
  interval_ms: number;
  is_full: boolean;
  has_latencies: boolean;
  times: number[];
  series: { name: string; unit: "records/s" | "bytes" | "records" | "partitions" | "share" | "ms"; values: Maybe<number>[] }[];
}

export interface TopicRow {
  name: string;
  id: string;
  is_internal: boolean;
  partitions: number;
  replication_factor: number;
  under_replicated: number;
  offline: number;
  bytes: Maybe<number>;
  records: Maybe<number>;
  records_per_second: Maybe<number>;
  records_out_per_second: Maybe<number>;
  retention_ms: Maybe<number>;
  retention_bytes: Maybe<number>;
  cleanup_policy: Maybe<string>;
  groups: { group_id: string; type: string; state: string; lag: Maybe<number> }[];
  group_count: number;
  lag: Maybe<number>;
}

export interface Topic extends TopicRow {
  partition_list: Partition[];
}

export interface Partition {
  partition: number;
  leader: Maybe<number>;
  replicas: number[];
  isr: number[];
  elr: Maybe<number[]>;
  log_start_offset: Maybe<number>;
  log_end_offset: Maybe<number>;
  last_stable_offset: Maybe<number>;
  bytes: Maybe<number>;
  latest_timestamp: Maybe<number>;
}

export interface Setting {
  name: string;
  value: Maybe<string>;
  source: string;
  is_default: boolean;
  is_read_only: boolean;
  is_sensitive: boolean;
  type: string;
  documentation: Maybe<string>;
  synonyms: { name: string; value: Maybe<string>; source: string }[];
}

export interface Data {
  format: "text" | "json" | "hex" | "avro" | "protobuf";
  text: string;
  bytes: number;
  cut: boolean;
  schema?: Maybe<SchemaName>;
  problem?: Maybe<string>;
}

/** The schema of a registry that a key or a value names. */
export interface SchemaName {
  id: string;
  type: Maybe<"avro" | "protobuf" | "json">;
  subject: Maybe<string>;
}

export interface KafkaRecord {
  partition: number;
  offset: number;
  timestamp: Maybe<number>;
  timestamp_type: "create_time" | "log_append_time";
  key: Maybe<Data>;
  value: Maybe<Data>;
  headers: { key: string; value: Maybe<Data> }[];
}

export interface Progress {
  scanned: number;
  scanned_bytes: number;
  matched: number;
  unjudged?: number;
  skipped: number;
  sent?: Maybe<number>;
  fraction: Maybe<number>;
  records_per_second: number;
  bytes_per_second: number;
  elapsed_ms: number;
  next?: Maybe<string>;
}

/** Offsets of a partition; the end is exclusive. */
export interface PartitionRange {
  partition: number;
  start: number;
  end: number;
}

/** How a redrive or its preview ended: a last `progress`, or `done`. */
export interface RedriveOutcome extends Progress {
  topic_id: string;
  /** Confirms the ranges, once. */
  token: Maybe<string>;
  ranges: PartitionRange[];
  unknown: PartitionRange[];
  unknown_records: number;
}

export interface GroupRow {
  group_id: string;
  type: string;
  protocol_type: string;
  state: string;
  members: Maybe<number>;
  lag: Maybe<number>;
  topics: Maybe<string[]>;
}

export type TopicSelection = { topic: string; partitions?: Maybe<number[]> }[];

export interface GroupPartition {
  topic: string;
  partition: number;
  committed_offset: Maybe<number>;
  log_start_offset: Maybe<number>;
  log_end_offset: Maybe<number>;
  lag: Maybe<number>;
  member_id: Maybe<string>;
  metadata: Maybe<string>;
}

export interface GroupMember {
  member_id: string;
  instance_id: Maybe<string>;
  client_id: string;
  host: string;
  epoch: Maybe<number>;
  assignment: TopicSelection;
  target_assignment: Maybe<TopicSelection>;
  /** Of a member of a streams group. */
  tasks: Maybe<GroupTasks[]>;
}

export interface GroupTasks {
  role: "active" | "standby" | "warmup";
  subtopology: string;
  partitions: number[];
}

export interface GroupTopology {
  epoch: number;
  subtopologies: { id: string; source_topics: string[]; repartition_source_topics: string[]; state_changelog_topics: string[] }[];
}

export interface Group extends GroupRow {
  why: Maybe<string>;
  coordinator: Maybe<number>;
  assignor: Maybe<string>;
  group_epoch: Maybe<number>;
  assignment_epoch: Maybe<number>;
  member_list: GroupMember[];
  partition_list: GroupPartition[];
  /** Of a streams group. */
  topology: Maybe<GroupTopology>;
}

/** The request of a preview. */
export interface OffsetReset {
  to: "earliest" | "latest" | "current" | "offset" | "timestamp" | "duration" | "shift" | "offsets";
  value?: Maybe<number>;
  topics?: Maybe<TopicSelection>;
  offsets?: { topic: string; partition: number; offset: number }[];
}

export interface OffsetChange {
  topic: string;
  partition: number;
  old: Maybe<number>;
  new: Maybe<number>;
  log_end_offset: Maybe<number>;
  lag: Maybe<number>;
  problem: Maybe<string>;
}

export interface Transaction {
  transactional_id: string;
  state: string;
  producer_id: number;
  producer_epoch: Maybe<number>;
  coordinator: number;
  timeout_ms: Maybe<number>;
  started: Maybe<number>;
  topics: Maybe<TopicSelection>;
}

export interface PartitionProducer {
  partition: number;
  producer_id: number;
  producer_epoch: number;
  coordinator_epoch: number;
  last_sequence: number;
  last_timestamp: Maybe<number>;
  transaction_start_offset: Maybe<number>;
  transactional_id: Maybe<string>;
  is_hanging: boolean;
  holds_back: Maybe<number>;
}

export interface Quota {
  entity: Record<string, Maybe<string>>;
  quotas: Record<string, Maybe<number>>;
}

export interface Acl {
  resource_type: string;
  resource_name: string;
  pattern_type: string;
  principal: string;
  host: string;
  operation: string;
  permission: string;
}

export interface AclDecision {
  operation: string;
  is_allowed: boolean;
  because: string;
  acl: Maybe<Acl>;
  also_matching: Acl[];
  elsewhere: Acl[];
  remark: Maybe<string>;
  to_allow: string[];
}

export interface Token {
  token_id: string;
  owner: string;
  requester: string;
  renewers: string[];
  issued: number;
  expires: number;
  max: number;
}

/** With the HMAC, which is shown once. */
export interface NewToken extends Token {
  hmac: string;
}

export interface User {
  user: string;
  credentials: { mechanism: string; iterations: number }[];
}

export interface Reassignment {
  topic: string;
  partition: number;
  replicas: number[];
  adding: number[];
  removing: number[];
  bytes: Maybe<number>;
  copied_bytes: Maybe<number>;
}

interface BrokerLoad {
  replicas: number;
  leaders: number;
  bytes: number;
  disk_percent: Maybe<number>;
}

export interface RebalancePlan {
  brokers: { id: number; rack: Maybe<string>; before: BrokerLoad; after: BrokerLoad }[];
  changes: { topic: string; partition: number; before: number[]; replicas: number[]; added: number[]; removed: number[]; bytes: number; changes_leader: boolean }[];
  moves: number;
  bytes: number;
  seconds: number;
  rate: number;
  busiest: Maybe<number>;
  unmet: { goal: "racks" | "disk" | "replicas" | "leaders" | "bytes_in"; broker: Maybe<number>; has: number; lower: Maybe<number>; upper: Maybe<number> }[];
}

/** A rebalance that is carried out. */
export interface RebalanceRun {
  state: "running" | "cancelling" | "done" | "cancelled" | "failed";
  started: number;
  partitions: number;
  missing: number;
  moves: number;
  bytes: number;
  moved: number;
  copied_bytes: number;
  moving: number;
  elected: number;
  not_elected: number;
  throttle: Maybe<number>;
  problem: Maybe<string>;
}

export interface PartitionResult {
  topic: string;
  partition: number;
  problem: Maybe<string>;
}

/** A run of `ottla bench`; its first two fields are not in an event stream. */
export interface BenchRun {
  scenario: string;
  started: number;
  state: "running" | "stopping" | "ended";
  progress: Maybe<string>;
  result: Maybe<string>;
  is_ok: Maybe<boolean>;
}

export interface BenchOverview {
  dir: Maybe<string>;
  refusal: Maybe<string>;
  scenarios: { name: string; title: string }[];
  run: Maybe<BenchRun>;
}

export interface BenchResultRow {
  name: string;
  modified: number;
  has_report: boolean;
  started: string;
  seconds: number;
  partial: Maybe<string>;
  scale: string;
  targets: { name: string }[];
  scenarios: { name: string; title: string }[];
}

/** `docs/bench-result.md` documents the fields. */
export interface BenchResult {
  ottla: string;
  command: string;
  started: string;
  seconds: number;
  partial: Maybe<string>;
  scale: string;
  machine: { processor?: string; cores?: number; memory_mb?: number; kernel?: string; noise?: number };
  targets: { name: string; description?: string }[];
  scenarios: BenchScenario[];
}

export interface BenchScenario {
  name: string;
  title: string;
  question: string;
  differences: string[];
  notes: string[];
  points: BenchPoint[];
}

export interface BenchPoint {
  label: string;
  runs: BenchTargetRuns[];
}

export interface BenchTargetRuns {
  target: string;
  summaries: Record<string, { median: number; min: number; max: number; rounds: number }>;
  curves: Record<string, { count: number; mean_us: number; points: [number, number][] }>;
}
