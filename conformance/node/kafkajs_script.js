// kafkajs' conformance script: `node kafkajs_script.js BOOTSTRAP`.
//
// Every step prints one line of JSON, {"step": …, "outcome": …}, the same on every run.

'use strict';

const { AssignerProtocol, CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel, PartitionAssigners } =
  require('kafkajs');
const snappy = require('kafkajs-snappy');
const lz4 = require('lz4-napi');
const { ZstdCodec } = require('zstd-codec');

const { PATIENCE, giveUp, settle, sleep } = require('./settle.js');

const T0 = 1_700_000_000_000;
const MAIN = 'kafkajs-main';

const COMMON = {
  clientId: 'kafkajs', brokers: [process.argv[2]], logLevel: logLevel.NOTHING, requestTimeout: PATIENCE,
  connectionTimeout: PATIENCE, retry: { initialRetryTime: 50, retries: 4 },
};
const kafka = new Kafka(COMMON);
const admin = kafka.admin();

const text = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString());
const own = (names) => names.filter((name) => name.startsWith('kafkajs')).sort();

async function outcome(action) {
  try {
    return (await action()) ?? null;
  } catch (error) {
    const details = (error.errors ?? []).map((one) => `${one.type ?? one.name} ${one.message}`).sort();
    return `! ${error.name}: ${[error.message, ...details].join('; ')}`;
  }
}

async function step(name, action) {
  process.stdout.write(`${JSON.stringify({ step: name, outcome: await outcome(action) })}\n`);
}

/** The i-th record of a series: keys, values and headers that are there, empty and null. */
function record(i, partition) {
  const headers = {};
  if (i % 3 > 0) {
    headers.same = Array.from({ length: i % 3 }, (_, n) => `header-${n}`);
  }
  if (i % 4 === 3) {
    headers.empty = '';
  }
  return {
    partition,
    key: i % 5 === 4 ? null : `key-${i}`,
    value: i % 7 === 6 ? null : `value-${i} `.repeat(i * i),
    timestamp: String(T0 + i * 1000),
    headers,
  };
}

function checksum(bytes) {
  if (bytes === null) {
    return null;
  }
  const digest = require('crypto').createHash('sha1').update(bytes).digest('hex');
  return `${bytes.length}/${digest.slice(0, 8)}`;
}

function recordShown({ partition, message }) {
  const headers = Object.entries(message.headers ?? {}).map(([key, value]) => [key, [].concat(value).map(text)]);
  return [partition, message.offset, message.timestamp, text(message.key), checksum(message.value), headers];
}

async function installCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = snappy;
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: (buffer) => lz4.decompressFrame(buffer),
  });
  const zstd = await new Promise((resolve) => ZstdCodec.run((found) => resolve(new found.Streaming())));
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  });
}

// ---- topics ---------------------------------------------------------------------------------------------------------

async function topics() {
  const cases = {
    main: { topic: MAIN, numPartitions: 3, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '-1' }] },
    defaults: { topic: 'kafkajs-defaults' },
    assigned: { topic: 'kafkajs-assigned', replicaAssignment: [{ partition: 0, replicas: [1] }, { partition: 1, replicas: [1] }] },
    exists: { topic: MAIN, numPartitions: 3, replicationFactor: 1 },
    'bad name': { topic: 'kafkajs/slash', numPartitions: 1, replicationFactor: 1 },
    'too many replicas': { topic: 'kafkajs-three', numPartitions: 1, replicationFactor: 3 },
    'bad setting': { topic: 'kafkajs-bad', numPartitions: 1, configEntries: [{ name: 'retention.ms', value: 'soon' }] },
  };
  for (const [what, topic] of Object.entries(cases)) {
    await step(`create ${what}`, () => admin.createTopics({ topics: [topic], waitForLeaders: false }));
  }
  await settle(process.argv[2]);
  await step('describe topics', async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [MAIN, 'kafkajs-assigned'] });
    return topics.map(({ name, partitions }) => [name, partitions
      .map((p) => [p.partitionId, p.leader, p.replicas, p.isr, p.partitionErrorCode]).sort((a, b) => a[0] - b[0])])
      .sort();
  });
  await step('describe unknown topic', () => admin.fetchTopicMetadata({ topics: ['kafkajs/nobody'] }));
  await step('list topics', async () => own(await admin.listTopics()));
  await step('describe cluster', async () => {
    const found = await admin.describeCluster();
    return [found.clusterId, found.controller, found.brokers];
  });
}

// ---- records --------------------------------------------------------------------------------------------------------

async function send(topic, partition, count,
  { acks = -1, compression = CompressionTypes.None, client = kafka, ...settings } = {}) {
  const producer = client.producer({ ...settings });
  await producer.connect();
  try {
    const messages = Array.from({ length: count }, (_, i) => record(i, partition));
    const found = await producer.send({ topic, acks, compression, messages, timeout: PATIENCE });
    return found.map((one) => [one.partition, one.errorCode, one.baseOffset]);
  } finally {
    await producer.disconnect();
  }
}

async function produce() {
  for (const acks of [1, -1, 0]) {
    for (const [name, compression] of Object.entries({
      none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
      lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
    })) {
      await step(`produce acks=${acks} ${name}`, () => send(MAIN, acks === 0 ? 1 : 0, 10, { acks, compression }));
    }
  }
  await step('produce idempotently', () => send(MAIN, 2, 20, { idempotent: true, maxInFlightRequests: 1 }));
  await step("produce over the broker's limit", async () => {
    const producer = kafka.producer();
    await producer.connect();
    try {
      return await producer.send({ topic: MAIN, messages: [{ partition: 2, value: Buffer.alloc(2_000_000) }] });
    } finally {
      await producer.disconnect();
    }
  });
  // A busy machine needs longer to create it than the client tries otherwise.
  const patient = new Kafka({ ...COMMON, retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 } });
  await step('produce creates the topic', () => send('kafkajs-auto', 0, 1, { client: patient }));
}

/** Reads that many records in a group of its own, from the start or from an offset. */
async function read(group, expected, { seek, ...settings } = {}) {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 200, maxWaitTimeInMs: 200,
    ...settings });
  const found = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [MAIN], fromBeginning: true });
  await consumer.run({ autoCommit: false, eachMessage: async (one) => { found.push(recordShown(one)); } });
  if (seek) {
    consumer.seek({ topic: MAIN, ...seek });
  }
  for (const began = Date.now(); found.length < expected; await sleep(50)) {
    if (Date.now() - began > PATIENCE) {
      giveUp(`${group} has read ${found.length} of ${expected} records`);
    }
  }
  await consumer.disconnect();
  return found.sort((a, b) => a[0] - b[0] || Number(a[1]) - Number(b[1]));
}

async function consume() {
  await step('consume all', () => read('kafkajs-reading', 170));
  await step('consume in small pieces', async () => {
    const found = await read('kafkajs-pieces', 170, { maxBytes: 100, maxBytesPerPartition: 100, readUncommitted: false });
    return [found.length, found.at(-1)];
  });
  await step('offsets', async () => {
    const offsets = await admin.fetchTopicOffsets(MAIN);
    return offsets.sort((a, b) => a.partition - b.partition);
  });
  for (const [what, time] of [['between', T0 + 4500], ['after all', T0 + 1_000_000]]) {
    await step(`offsets ${what}`, async () => {
      const offsets = await admin.fetchTopicOffsetsByTimestamp(MAIN, time);
      return offsets.sort((a, b) => a.partition - b.partition);
    });
  }
  await step('seek by time', async () => {
    const offsets = await admin.fetchTopicOffsetsByTimestamp(MAIN, T0 + 7000);
    const from = offsets.find((one) => one.partition === 0).offset;
    const found = await read('kafkajs-seeking', 93, { seek: { partition: 0, offset: from } });
    return [from, found.find((one) => one[0] === 0 && Number(one[1]) >= Number(from))];
  });
}

// ---- groups ---------------------------------------------------------------------------------------------------------

async function join(group) {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 200, maxWaitTimeInMs: 200,
    partitionAssigners: [PartitionAssigners.roundRobin] });
  const member = { consumer, held: [] };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { member.held = payload.memberAssignment[MAIN] ?? []; });
  consumer.on(consumer.events.REBALANCING, () => { member.held = []; });
  await consumer.connect();
  await consumer.subscribe({ topics: [MAIN], fromBeginning: true });
  await consumer.run({ autoCommit: false, eachMessage: async () => {} });
  return member;
}

async function settled(members, partitions) {
  let calm = 0;
  let last = '';
  for (const began = Date.now(); Date.now() - began < PATIENCE;) {
    await sleep(100);
    const sizes = members.map((member) => member.held.length).sort();
    const different = new Set(members.flatMap((member) => member.held)).size;
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const isSpread = total === partitions && different === partitions
      && sizes[0] >= Math.floor(partitions / members.length);
    calm = isSpread && last === String(sizes) ? calm + 1 : 0;
    last = String(sizes);
    if (calm >= 3) {
      return sizes;
    }
  }
  return giveUp(`the group does not settle: ${last}`);
}

async function groupShown(group) {
  const { groups } = await admin.describeGroups([group]);
  return groups.map((one) => [one.errorCode, one.groupId, one.state, one.protocolType, one.protocol, one.members
    .map((member) => [member.clientId, member.clientHost,
      AssignerProtocol.MemberMetadata.decode(member.memberMetadata)?.topics ?? null])]);
}

async function groups() {
  const group = 'kafkajs-rebalancing';
  const members = [];
  for (const which of ['first', 'second', 'third']) {
    await step(`group: ${which} member`, async () => {
      members.push(await join(group));
      return settled(members, 3);
    });
  }
  await step('group: described', () => groupShown(group));
  await step('group: first member leaves', async () => {
    await members.shift().consumer.disconnect();
    return settled(members, 3);
  });
  await step('group: all leave', async () => {
    for (const member of members) {
      await member.consumer.disconnect();
    }
    return groupShown(group);
  });
  const committing = 'kafkajs-committing';
  const committed = async () => {
    const found = await admin.fetchOffsets({ groupId: committing, topics: [MAIN] });
    return found.map((one) => [one.topic, one.partitions.sort((a, b) => a.partition - b.partition)]);
  };
  await step('commit', async () => {
    const member = await join(committing);
    await settled([member], 3);
    await member.consumer.commitOffsets([{ topic: MAIN, partition: 0, offset: '7', metadata: 'seven' },
      { topic: MAIN, partition: 1, offset: '3' }]);
    await member.consumer.disconnect();
  });
  await step('list committed offsets', committed);
  await step('set committed offsets', async () => {
    await admin.setOffsets({ groupId: committing, topic: MAIN, partitions: [{ partition: 0, offset: '2' }] });
    return committed();
  });
  await step('reset committed offsets', async () => {
    await admin.resetOffsets({ groupId: committing, topic: MAIN, earliest: true });
    return committed();
  });
  await step('list groups', async () => (await admin.listGroups()).groups
    .filter((one) => one.groupId.startsWith('kafkajs')).map((one) => `${one.groupId} ${one.protocolType}`).sort());
  await step('delete group', () => admin.deleteGroups([committing]));
  await step('delete unknown group', () => admin.deleteGroups(['kafkajs-nobody']));
}

// ---- settings, partitions, deletion ---------------------------------------------------------------------------------

// Settings of topics since Kafka 4.4, which Ottla shows and the Kafka that it is compared with, 4.3.1, does not have.
const SINCE_KAFKA_4_4 = new Set(['errors.deadletterqueue.group.enable', 'max.decompressed.message.bytes',
  'remote.copy.lag.bytes', 'remote.copy.lag.ms']);

async function settings() {
  const shown = async () => {
    const { resources } = await admin.describeConfigs({ includeSynonyms: true,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: MAIN }] });
    return resources[0].configEntries
      .filter((one) => !SINCE_KAFKA_4_4.has(one.configName))
      .map((one) => [one.configName, one.configSource === 4 ? '-' : one.configValue, one.configSource, one.isSensitive,
        one.readOnly, one.configSynonyms.length])
      .sort((a, b) => (a[0] < b[0] ? -1 : 1));
  };
  await step('describe topic settings', shown);
  for (const [name, value] of [['segment.ms', '3600000'], ['segment.ms', 'later'], ['no.such.key', '1']]) {
    await step(`alter ${name}=${value}`, async () => {
      const { resources } = await admin.alterConfigs({ validateOnly: false, resources: [
        { type: ConfigResourceTypes.TOPIC, name: MAIN,
          configEntries: [{ name: 'retention.ms', value: '-1' }, { name, value }] }] });
      await settle(process.argv[2]);
      return [resources, await shown()];
    });
  }
}

async function deletion() {
  for (const count of [5, 2]) {
    await step(`create partitions to ${count}`, () =>
      admin.createPartitions({ topicPartitions: [{ topic: MAIN, count }] }));
  }
  await settle(process.argv[2]);
  for (const offset of ['5', '1000']) {
    await step(`delete records before ${offset}`, async () => {
      await admin.deleteTopicRecords({ topic: MAIN, partitions: [{ partition: 1, offset }] });
      return (await admin.fetchTopicOffsets(MAIN)).find((one) => one.partition === 1);
    });
  }
  await step('delete topics', () => admin.deleteTopics({ topics: ['kafkajs-auto', 'kafkajs-assigned'] }));
  await step('delete unknown topic', () => admin.deleteTopics({ topics: ['kafkajs-nobody'] }));
  await settle(process.argv[2]);
  await step('topics left', async () => own(await admin.listTopics()));
}

async function main() {
  await installCodecs();
  await admin.connect();
  await topics();
  await produce();
  await consume();
  await groups();
  await settings();
  await deletion();
  await admin.disconnect();
}

main().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
