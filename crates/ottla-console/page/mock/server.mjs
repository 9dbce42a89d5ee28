// A console without a cluster, to develop the page and to test it: `node mock/server.mjs PORT`. It serves the built
// files with the headers that the real server sends, and answers the paths of openapi.yaml from a made-up cluster. The
// environment changes it: TOPICS=100000, EMPTY=1, LOGIN=1 (the password is "secret"), OIDC=1 (an
// identity provider too), READ_ONLY=1.
import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

import * as made from "./cluster.mjs";
import { measure } from "./measure.mjs";
import { produced, record, redrive, streamRecords } from "./records.mjs";

const ASSETS = fileURLToPath(new URL("../../assets", import.meta.url));
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".md": "text/plain; charset=utf-8" };
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const MANY = Number(process.env.TOPICS ?? 0);
const HAS_OIDC = process.env.OIDC === "1";
const NEEDS_LOGIN = HAS_OIDC || process.env.LOGIN === "1";
const IS_READ_ONLY = process.env.READ_ONLY === "1";
const IS_EMPTY = process.env.EMPTY === "1";
/** The user who is logged in. The mock has one session for everybody. */
let user = null;

class Refusal extends Error {
  constructor(status, detail, code = null, field = null) {
    super(detail);
    Object.assign(this, { status, code, field });
  }
}

const session = () => ({ version: "0.1.0 (mock)", bootstrap_servers: "kafka-1.example.net:9092", login: NEEDS_LOGIN ? (user ? "done" : "required") : "none", user, mechanisms: ["SCRAM-SHA-512", "PLAIN"], oidc: HAS_OIDC ? "id.example.net" : null, read_only: IS_READ_ONLY, registry: true });

/** A page of a list, searched and sorted as openapi.yaml says. */
function list(items, parameters, nameOf) {
  const search = (parameters.get("search") ?? "").toLowerCase();
  let found = search ? items.filter((it) => nameOf(it).toLowerCase().includes(search)) : items;
  const sort = parameters.get("sort");
  if (sort) {
    const sign = parameters.get("order") === "desc" ? -1 : 1;
    found = [...found].sort((a, b) => (a[sort] === b[sort] ? 0 : (a[sort] ?? -1) < (b[sort] ?? -1) ? -sign : sign));
  }
  const offset = Number(parameters.get("offset") ?? 0);
  return { total: found.length, as_of: Date.now(), items: found.slice(offset, offset + Number(parameters.get("limit") ?? 100)) };
}

function topicOf(name) {
  const special = { hostile: 600, slow: 200_000, flood: 0 }[name];
  const found = made.topics.get(name) ?? (special === undefined ? undefined : { ...made.topics.get("audit"), name, partitions: 3, records: special });
  if (!found) throw new Refusal(404, `topic ${name} does not exist`, "UNKNOWN_TOPIC_OR_PARTITION");
  return found;
}

function groupOf(name) {
  const group = made.groups.find((it) => it.group_id === name);
  if (!group) throw new Refusal(404, `group ${name} does not exist`, "GROUP_ID_NOT_FOUND");
  const members = Array.from({ length: group.members }, (_, index) => ({ member_id: `member-${index}`, instance_id: null, client_id: `${name.slice(0, 20)}-${index}`, host: `10.2.0.${index + 10}`, epoch: 8, assignment: [{ topic: group.topics[0], partitions: [index] }], target_assignment: null, tasks: group.topology ? [{ role: "active", subtopology: "0", partitions: [index] }, { role: "standby", subtopology: "1", partitions: [index] }] : null }));
  const partition_list = group.topics.flatMap((topic) =>
    made.partitionsOf(made.topics.get(topic)).map((it) => {
      const lag = Math.floor(group.lag / 12);
      const committed = (group.moved ??= {})[`${topic}-${it.partition}`] ?? Math.max(it.log_start_offset, it.log_end_offset - lag);
      return { topic, partition: it.partition, committed_offset: committed, log_start_offset: it.log_start_offset, log_end_offset: it.log_end_offset, lag: it.log_end_offset - committed, member_id: members[it.partition % Math.max(1, members.length)]?.member_id ?? null, metadata: "" };
    }),
  );
  return { ...group, protocol_type: "consumer", why: members.length ? null : "No consumer is connected, so the lag grows with every record.", coordinator: 2, assignor: "uniform", group_epoch: 8, assignment_epoch: 8, member_list: members, partition_list, topology: group.topology ?? null };
}

function resetOffsets(name, body) {
  const group = made.groups.find((it) => it.group_id === name);
  if (!body.preview) {
    if (group.members > 0) throw new Refusal(409, `group ${name} has ${group.members} members; stop its consumers first`, "NON_EMPTY_GROUP");
    if (!body.changes?.length) throw new Refusal(422, "give the changes that the preview answered, each partition once", null, "changes");
    for (const it of body.changes) (group.moved ??= {})[`${it.topic}-${it.partition}`] = it.new;
    return { items: body.changes.map((it) => ({ ...it, log_end_offset: null, lag: null, problem: null })) };
  }
  const wanted = new Map((body.offsets ?? []).map((it) => [`${it.topic}-${it.partition}`, it.offset]));
  const chosen = groupOf(name).partition_list.filter((it) => (body.to === "offsets" ? wanted.has(`${it.topic}-${it.partition}`) : !body.topics || body.topics.some((topic) => topic.topic === it.topic)));
  const items = chosen.map((it) => {
    const to = { earliest: it.log_start_offset, latest: it.log_end_offset, current: it.committed_offset, offset: body.value, shift: it.committed_offset + body.value, timestamp: it.log_end_offset - 40, duration: it.log_end_offset - 40, offsets: wanted.get(`${it.topic}-${it.partition}`) }[body.to];
    const next = Math.min(it.log_end_offset, Math.max(it.log_start_offset, to));
    return { topic: it.topic, partition: it.partition, old: it.committed_offset, new: next, log_end_offset: it.log_end_offset, lag: it.log_end_offset - next, problem: null };
  });
  return { items };
}

function changeSettings(what, body) {
  const settings = made.settingsOf(what);
  for (const [name, value] of Object.entries(body.set ?? {})) {
    const setting = settings.find((it) => it.name === name);
    if (!setting) throw new Refusal(422, `${name}: unknown setting`, "INVALID_CONFIG");
    if (/int|long/.test(setting.type) && !/^-?\d+$/.test(value)) throw new Refusal(422, `${name}=${value}: not a number`, "INVALID_CONFIG");
    if (!body.preview) Object.assign(setting, { synonyms: [{ name, value, source: "topic" }, { name, value: setting.value, source: "default" }], value, source: "topic", is_default: false });
  }
  for (const name of body.preview ? [] : (body.delete ?? [])) {
    const setting = settings.find((it) => it.name === name);
    Object.assign(setting, { value: setting.synonyms[1]?.value ?? setting.value, source: "default", is_default: true });
  }
  return { items: settings };
}

function createTopic({ name, partitions, replication_factor, configs, preview }) {
  if (made.topics.has(name)) throw new Refusal(409, `topic ${name} exists`, "TOPIC_ALREADY_EXISTS", "name");
  if ((replication_factor ?? 1) > 3) throw new Refusal(422, `replication factor ${replication_factor}: there are 3 brokers`, "INVALID_REPLICATION_FACTOR", "replication_factor");
  const created = { name, partitions: partitions ?? 1, replication_factor: replication_factor ?? 3 };
  if (!preview) made.topics.set(name, { ...made.topics.get("inventory-changes"), ...created, records: 0, bytes: 0, retention_ms: Number(configs?.["retention.ms"] ?? 604_800_000), cleanup_policy: "delete" });
  return created;
}

const tokens = [];
let rebalance = null;
const cordoned = new Set(["/var/lib/ottla/b"]);

function same(a, b) {
  return Object.keys(a).every((name) => a[name] === b[name]);
}

/** The answer to a request of the API; `undefined` for 204. */
function answer(method, [first, second, third, fourth, fifth], parameters, body, response) {
  const route = `${method} ${first}${second === undefined ? "" : "/*"}${third === undefined ? "" : "/" + third}`;
  switch (route) {
    case "GET session":
      return session();
    case "POST session":
      if (body.password !== "secret") throw new Refusal(401, "the cluster does not accept this user and password", "SASL_AUTHENTICATION_FAILED");
      user = body.user;
      return session();
    case "POST session/*":
      // The provider, which would show its login page.
      return { address: "/login?state=begun&code=made-up" };
    case "POST session/*/code":
      if (body.state !== "begun") throw new Refusal(401, "this answer of the identity provider belongs to no login that was begun last in this browser");
      user = "alice@example.net";
      return session();
    case "DELETE session":
      user = null;
      return undefined;
  }
  if (NEEDS_LOGIN && !user) throw new Refusal(401, "log in first");
  if (IS_READ_ONLY && method !== "GET") throw new Refusal(403, "the console runs in read-only mode");
  if (first === "measure") {
    const refuse = (...refusal) => {
      throw new Refusal(...refusal);
    };
    return measure(method, [second, third, fourth], parameters, body, response, { isReadOnly: IS_READ_ONLY, refuse });
  }
  switch (route) {
    case "GET cluster":
      return made.cluster();
    case "GET series":
      return made.series(parameters.get("of"), Number(parameters.get("last_ms") ?? 7_200_000));
    case "GET topics": {
      if (MANY === 0) return list(IS_EMPTY ? [] : [...made.topics.values()], parameters, (it) => it.name);
      const offset = Number(parameters.get("offset") ?? 0);
      const length = Math.max(0, Math.min(Number(parameters.get("limit") ?? 100), MANY - offset));
      return { total: MANY, as_of: Date.now(), items: Array.from({ length }, (_, index) => made.manyTopics(offset + index)) };
    }
    case "POST topics":
      return createTopic(body);
    case "GET topics/*":
      return { ...topicOf(second), partition_list: made.partitionsOf(topicOf(second)) };
    case "DELETE topics/*":
      if (parameters.get("confirm") !== second) throw new Refusal(422, "confirm is not the name of the topic");
      topicOf(second);
      made.topics.delete(second);
      return undefined;
    case "GET topic-settings":
      return { items: made.settingsOf("new topic") };
    case "GET topics/*/settings":
    case "GET groups/*/settings":
    case "GET brokers/*/settings":
      return { items: made.settingsOf(`${first.slice(0, -1)} ${second}`) };
    case "PATCH topics/*/settings":
    case "PATCH groups/*/settings":
    case "PATCH brokers/*/settings":
      return changeSettings(`${first.slice(0, -1)} ${second}`, body);
    case "POST topics/*/partitions":
      topicOf(second).partitions = body.count;
      return undefined;
    case "POST topics/*/empty": {
      const topic = topicOf(second);
      const partitions = made.partitionsOf(topic).map((it) => ({ partition: it.partition, log_start_offset: it.log_end_offset, records: it.log_end_offset - it.log_start_offset, problem: null }));
      const records = partitions.reduce((sum, it) => sum + it.records, 0);
      if (!body.preview && !body.before) throw new Refusal(422, "before is missing; give the offsets that the preview answered", null, "before");
      if (!body.preview) Object.assign(topic, { records: 0, bytes: 0 });
      return { topic_id: topic.name, records, partitions };
    }
    case "GET topics/*/producers":
      if (fourth !== undefined) break;
      return { items: second === "payments" ? [{ partition: 3, producer_id: 4_112, producer_epoch: 3, coordinator_epoch: 1, last_sequence: 812, last_timestamp: made.START - 840_000, transaction_start_offset: 4_000_120, transactional_id: null, is_hanging: true, holds_back: 48_211 }] : [] };
    case "POST topics/*/producers":
      return undefined;
    case "GET topics/*/records":
      if (fourth !== undefined) {
        const index = (Number(fifth) - 1_000_000) * 3 + Number(fourth);
        const mine = (produced.get(second) ?? []).find((it) => it.partition === Number(fourth) && it.offset === Number(fifth));
        return mine ?? record(second, index, parameters.get("format") ?? "auto", 1 << 24);
      }
      streamRecords(response, second, topicOf(second).records, parameters);
      return response;
    case "POST topics/*/records": {
      const mine = produced.get(second) ?? produced.set(second, []).get(second);
      const text = (value) => (value === null ? null : { format: "text", text: value, bytes: value.length, cut: false, problem: null });
      const items = body.records.map((it) => {
        const made = { partition: it.partition ?? 0, offset: 2_000_000 + mine.length, timestamp: Date.now(), timestamp_type: "create_time", key: text(it.key), value: text(it.value), headers: it.headers.map((header) => ({ key: header.key, value: text(header.value) })) };
        mine.push(made);
        return { partition: made.partition, offset: made.offset, problem: null };
      });
      return { items };
    }
    case "POST topics/*/redrive":
      if (body.to !== "flaky") topicOf(body.to);
      redrive(response, topicOf(second).records, body);
      return response;
    case "GET topics/*/export":
      response.writeHead(200, { "content-type": "application/x-ndjson", "content-disposition": `attachment; filename="${second}.jsonl"` });
      response.end(JSON.stringify(record(second, 0)) + "\n");
      return response;
    case "GET groups": {
      const found = made.groups.filter((it) => (!parameters.get("type") || it.type === parameters.get("type")) && (!parameters.get("state") || it.state === parameters.get("state")));
      return list(IS_EMPTY ? [] : found, parameters, (it) => it.group_id);
    }
    case "GET groups/*":
      return groupOf(second);
    case "DELETE groups/*":
      if (groupOf(second).members > 0) throw new Refusal(409, `group ${second} has members`, "NON_EMPTY_GROUP");
      made.groups.splice(made.groups.findIndex((it) => it.group_id === second), 1);
      return undefined;
    case "POST groups/*/offsets":
      return resetOffsets(second, body);
    case "GET transactions":
      return list(IS_EMPTY ? [] : made.transactions.filter((it) => !parameters.get("state") || it.state === parameters.get("state")), parameters, (it) => it.transactional_id);
    case "GET transactions/*":
      return made.transactions.find((it) => it.transactional_id === second);
    case "POST transactions/*/abort":
      made.transactions.find((it) => it.transactional_id === second).state = "CompleteAbort";
      return undefined;
    case "GET acls":
      if (IS_EMPTY) throw new Refusal(422, "the cluster has no authorizer", "SECURITY_DISABLED");
      return list(made.acls, parameters, (it) => it.principal + it.resource_name);
    case "GET acls/*": {
      const asked = Object.fromEntries(parameters);
      const acl = made.acls.find((it) => it.principal === asked.principal && it.resource_type === asked.resource_type && it.operation === asked.operation && asked.resource_name.startsWith(it.resource_name));
      const decision = { operation: asked.operation, is_allowed: acl?.permission === "allow", because: acl ? `an ACL ${acl.permission === "allow" ? "allows" : "denies"} it` : "no ACL allows it", acl: acl ?? null, also_matching: [], elsewhere: [], remark: null };
      return { items: [{ ...decision, to_allow: acl ? [] : [`ottla acls --add --allow-principal ${asked.principal} --operation Read --topic ${asked.resource_name}`] }], notes: [] };
    }
    case "POST acls":
      made.acls.push(body);
      return undefined;
    case "DELETE acls":
      made.acls.splice(made.acls.findIndex((it) => same(it, body)), 1);
      return undefined;
    case "GET users":
      return list(IS_EMPTY ? [] : made.users, parameters, (it) => it.user);
    case "PUT users/*":
      made.users.push({ user: second, credentials: [{ mechanism: body.mechanism, iterations: body.iterations }] });
      return undefined;
    case "DELETE users/*":
      made.users.splice(made.users.findIndex((it) => it.user === second), 1);
      return undefined;
    case "GET delegation-tokens":
      return list(IS_EMPTY ? [] : tokens, parameters, (it) => it.owner);
    case "POST delegation-tokens": {
      const token = { token_id: `made-up-${tokens.length}`, owner: body.owner ?? "User:me", requester: "User:me", renewers: body.renewers, issued: Date.now(), expires: Date.now() + 86_400_000, max: Date.now() + 7 * 86_400_000 };
      tokens.push(token);
      return { ...token, hmac: "bm90IGEgc2VjcmV0" };
    }
    case "POST delegation-tokens/*/renew":
      return { expires: Date.now() + 86_400_000 };
    case "POST delegation-tokens/*/expire":
      tokens.splice(tokens.findIndex((it) => it.token_id === second), 1);
      return { expires: Date.now() };
    case "GET quotas":
      return list(IS_EMPTY ? [] : made.quotas, parameters, (it) => JSON.stringify(it.entity));
    case "PATCH quotas": {
      const old = made.quotas.find((it) => JSON.stringify(it.entity) === JSON.stringify(body.entity));
      if (old) Object.assign(old.quotas, body.quotas);
      else made.quotas.push(body);
      return undefined;
    }
    case "GET brokers/*": {
      const broker = made.brokers.find((it) => String(it.id) === second);
      if (!broker) throw new Refusal(404, `broker ${second} is not registered`);
      const dir = (path, share) => ({ path, problem: null, total_bytes: 1e12, usable_bytes: broker.usable_bytes * share, is_cordoned: cordoned.has(path), bytes: broker.bytes * share, replicas: 77, largest: [0, 1, 2].map((partition) => ({ topic: "clickstream.web.v2", partition, bytes: 48e9 - partition * 1e9, offset_lag: 0, is_future: partition === 2 })) });
      const times = (api, p50_ms, p99_ms, own_p99_ms) => ({ api, count: 90_210, p50_ms, p99_ms, own_p99_ms });
      const slow = (api, api_version, client_id, error, total_ms, remote_ms) => ({ api, api_version, sent: Date.now() - 61_000, client_id, principal: "User:billing", peer: "10.0.4.17:51234", error, total_ms, local_ms: total_ms - remote_ms - 0.5, remote_ms, response_send_ms: 0.5 });
      const activity = {
        1: { connections: [{ listener: "SASL_SSL", open: 1204 }], requests: [times("Fetch", 500, 510, 0.4), times("Produce", 1.2, 9.5, 1.1)], slow_requests: [slow("Produce", 13, "invoice-writer", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 30_004, 29_998), slow("ListOffsets", 11, "a\u202eb<b>", null, 48.5, 0)] },
        3: { connections: [{ listener: "SASL_SSL", open: 3 }], requests: [times("Metadata", 0.4, 0.9, 0.9)], slow_requests: [] },
      }[broker.id] ?? null;
      return { ...broker, activity, dirs: [dir("/var/lib/ottla/a", 0.55), dir("/var/lib/ottla/b", 0.45)], api_versions: [{ api: "Produce", min: 0, max: 13 }, { api: "Fetch", min: 4, max: 18 }] };
    }
    case "PATCH brokers/*/log-dirs":
      if (body.is_cordoned) cordoned.add(body.path);
      else cordoned.delete(body.path);
      return { replicas: 77, bytes: 1e9, open_dirs: 2 - cordoned.size, cordoned: [...cordoned] };
    case "GET rebalance-plan": {
      if (parameters.get("emptied") === "1,2,3") throw new Refusal(409, "no broker that runs would be left; empty fewer brokers");
      const load = (replicas) => ({ replicas, leaders: replicas / 2, bytes: replicas * 1e9, disk_percent: replicas });
      const changes = [0, 1, 2].map((partition) => ({ topic: "orders", partition, before: [1], replicas: [3], added: [3], removed: [1], bytes: 1e9, changes_leader: true }));
      const brokers = [[1, 40, 30], [2, 30, 30], [3, 20, 30]].map(([id, before, after]) => ({ id, rack: null, before: load(before), after: load(after) }));
      return { brokers, changes, moves: 3, bytes: 3e9, seconds: 60, rate: Number(parameters.get("rate")), busiest: 1, unmet: [{ goal: "leaders", broker: 2, has: 9, lower: 10, upper: 12 }] };
    }
    case "GET rebalance":
      if (rebalance?.state === "running" && Date.now() > rebalance.until) rebalance = { ...rebalance, state: "done", moved: 3, copied_bytes: 3e9, moving: 0, elected: 3 };
      return { rebalance };
    case "POST rebalance":
      rebalance = { state: "running", started: Date.now(), partitions: body.partitions.length, missing: 0, moves: 3, bytes: 3e9, moved: 1, copied_bytes: 1.5e9, moving: 2, elected: 0, not_elected: 0, throttle: body.throttle, problem: null, until: Date.now() + (body.throttle ? 60_000 : 1000) };
      return { rebalance };
    case "DELETE rebalance":
      rebalance = { ...rebalance, state: "cancelled", moving: 0 };
      return { rebalance };
    case "DELETE throttles":
      return { brokers: 3, topics: 1 };
    case "GET reassignments":
      return list(IS_EMPTY ? [] : made.reassignments, parameters, (it) => it.topic);
    case "POST reassignments":
      for (const it of body.partitions) if (it.replicas === null) made.reassignments.splice(0, 1);
      return { items: body.partitions.map(({ topic, partition }) => ({ topic, partition, problem: null })) };
    case "POST elections":
      return { items: [] };
  }
  throw new Refusal(404, `${method} /api/${first}: no such path`);
}

async function serve(request, response) {
  const { pathname, searchParams } = new URL(request.url, "http://x");
  const headers = { "content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" };
  if (!pathname.startsWith("/api/")) {
    const file = join(ASSETS, pathname);
    const found = pathname !== "/" && file.startsWith(ASSETS) && existsSync(file) ? file : join(ASSETS, "index.html");
    response.writeHead(200, { ...headers, "content-type": TYPES[extname(found)], "cache-control": "no-cache" });
    createReadStream(found).pipe(response);
    return;
  }
  let text = "";
  for await (const part of request) text += part;
  try {
    if (request.headers["x-ottla-console"] !== "1" && searchParams.get("download") !== "1") throw new Refusal(403, "the header X-Ottla-Console is missing");
    const segments = pathname.slice("/api/".length).split("/").map(decodeURIComponent);
    const found = answer(request.method, segments, searchParams, text ? JSON.parse(text) : {}, response);
    if (found === response) return;
    response.writeHead(found === undefined ? 204 : 200, { "content-type": "application/json" });
    response.end(found === undefined ? undefined : JSON.stringify(found));
  } catch (error) {
    const status = error.status ?? 500;
    response.writeHead(status, { "content-type": "application/problem+json" });
    response.end(JSON.stringify({ type: "about:blank", title: "refused", status, detail: error.message, code: error.code ?? null, field: error.field ?? null }));
  }
}

const server = createServer((request, response) => void serve(request, response));
server.listen(Number(process.argv[2] ?? 9711), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
