// kafkajs' script on listeners with TLS and logins: `node secured_kafkajs_script.js BOOTSTRAP PLACE`, where the file PLACE
// has the addresses of the listeners and the folder of the certificates.

'use strict';

const fs = require('fs');
const path = require('path');

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ConfigResourceTypes, Kafka, logLevel,
  ResourcePatternTypes } = require('kafkajs');

const { PATIENCE, settle, sleep } = require('./settle.js');

const place = JSON.parse(fs.readFileSync(process.argv[3], 'utf8'));
const TOPIC = 'secured-secured-kafkajs';
const PREFIX = 'secured-kafkajs-';

const WAYS = [
  ['sasl', 'SASL_PLAINTEXT', 'plain'], ['sasl', 'SASL_PLAINTEXT', 'scram-sha-256'], ['saslssl', 'SASL_SSL', 'plain'],
  ['saslssl', 'SASL_SSL', 'scram-sha-256'], ['saslssl', 'SASL_SSL', 'scram-sha-512'], ['ssl', 'SSL', ''],
];
const USUAL = WAYS[4];
const MUTUAL = WAYS[5];
// With a token of the run's issuer, in a file of the name that stands for the user.
const BEARER = ['oauth', 'SASL_PLAINTEXT', 'oauthbearer'];

const name = (way) => way.slice(1).join(' ').trim();
const certificate = (file) => fs.readFileSync(path.join(place.certificates, file), 'utf8');
// Which alert says that a certificate will not do is the TLS library's choice.
const masked = (message) => message.replace(/[a-z0-9]+ alert [a-z ]+.*/g, 'alert').replace(/[0-9A-F]{8,}:|:[^:]*\.c(c)?:\d+:/g, '…').replace(/\d+ms/g, '…');

async function outcome(action) {
  try {
    return (await action()) ?? null;
  } catch (error) {
    const details = (error.errors ?? []).map((one) => `${one.type ?? one.name} ${one.message}`).sort();
    return `! ${error.name}: ${masked([error.message, ...details].join('; '))}`;
  }
}

async function step(what, action) {
  process.stdout.write(`${JSON.stringify({ step: what, outcome: await outcome(action) })}\n`);
}

/** A client that gets in this way as this user, or with this certificate. */
function client([listener, protocol, mechanism], user, password = `${user}-secret`, authority = 'authority.pem') {
  const settings = {
    clientId: 'kafkajs', brokers: [place[listener]], logLevel: logLevel.NOTHING, requestTimeout: PATIENCE,
    connectionTimeout: PATIENCE, retry: { initialRetryTime: 50, retries: 1 },
  };
  if (protocol.endsWith('SSL')) {
    settings.ssl = { ca: [certificate(authority)] };
    if (!mechanism && user) {
      settings.ssl.cert = certificate(`${user}.crt`);
      settings.ssl.key = certificate(`${user}.key`);
    }
  }
  if (mechanism === 'oauthbearer') {
    settings.sasl = { mechanism, oauthBearerProvider: async () => ({ value: certificate(`${user}.jwt`) }) };
  } else if (mechanism) {
    settings.sasl = { mechanism, username: user, password };
  }
  return new Kafka(settings);
}

async function send(kafka, length, settings = {}) {
  const producer = kafka.producer(settings);
  await producer.connect();
  try {
    await producer.send({ topic: TOPIC, messages: [{ partition: 0, value: 'v'.repeat(length) }] });
    return 'sent';
  } finally {
    await producer.disconnect();
  }
}

/** The offset of the first record, or why there is none. */
async function read(kafka, groupId) {
  const consumer = kafka.consumer({ groupId, retry: { retries: 0 } });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
    return await new Promise((resolve, reject) => {
      const giveUp = setTimeout(() => resolve('nothing'), PATIENCE);
      const done = (settle) => (value) => {
        clearTimeout(giveUp);
        settle(value);
      };
      consumer.on(consumer.events.CRASH, ({ payload }) => done(reject)(payload.error));
      consumer.run({ eachMessage: async ({ message }) => done(resolve)(message.offset) }).catch(done(reject));
    });
  } finally {
    await consumer.disconnect();
  }
}

async function withAdmin(kafka, action) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await action(admin);
  } finally {
    await admin.disconnect();
  }
}

async function allowed() {
  for (const way of [...WAYS, BEARER]) {
    const kafka = client(way, { '': 'client', oauthbearer: 'valid' }[way[2]] ?? 'alice');
    await step(`allowed ${name(way)}, send`, () => send(kafka, 100_000));
    await step(`allowed ${name(way)}, read`, () => read(kafka, `secured-kafkajs-${way.join('-')}`));
    await step(`allowed ${name(way)}, topics`, () => withAdmin(kafka, async (admin) =>
      (await admin.listTopics()).filter((topic) => topic.includes('kafkajs')).sort()));
  }
}

async function refused() {
  const tries = {};
  for (const way of WAYS.slice(0, 5)) {
    tries[`${name(way)}, wrong password`] = client(way, 'alice', 'wrong');
    tries[`${name(way)}, unknown user`] = client(way, 'nobody');
  }
  Object.assign(tries, {
    'mechanism that is not enabled': client(['sasl', 'SASL_PLAINTEXT', 'scram-sha-512'], 'alice'),
    'SSL, an authority that the client does not trust': client(MUTUAL, 'client', '', 'stranger.pem'),
    'SSL, no certificate': client(MUTUAL, null),
    'SSL, an expired certificate': client(MUTUAL, 'expired'),
    'SSL, a certificate of another authority': client(MUTUAL, 'foreign'),
    'PLAINTEXT at a listener of SASL': new Kafka({
      brokers: [place.sasl], logLevel: logLevel.NOTHING, connectionTimeout: PATIENCE,
      retry: { initialRetryTime: 50, retries: 1 },
    }),
  });
  for (const [what, kafka] of Object.entries(tries)) {
    await step(`refused: ${what}`, () => withAdmin(kafka, (admin) => admin.listTopics()));
  }
}

async function denied() {
  for (const user of ['carol', 'reader', 'member']) {
    const kafka = client(USUAL, user);
    await step(`denied: ${user}, produce`, () => send(kafka, 10));
    await step(`denied: ${user}, produce, idempotent`, () => send(kafka, 10, { idempotent: true, retry: { retries: 1 } }));
    await step(`denied: ${user}, a transaction`, () => send(kafka, 10,
      { idempotent: true, transactionalId: 'secured-kafkajs', maxInFlightRequests: 1, retry: { retries: 1 } }));
    await step(`denied: ${user}, be a member`, () => read(kafka, `secured-kafkajs-${user}`));
    const calls = {
      'list topics': async (admin) => (await admin.listTopics()).filter((topic) => topic.includes('kafkajs')).sort(),
      'describe a topic': (admin) => admin.fetchTopicMetadata({ topics: [TOPIC] }),
      'create a topic': (admin) => admin.createTopics({ topics: [{ topic: 'secured-kafkajs-more' }] }),
      'delete a topic': (admin) => admin.deleteTopics({ topics: [TOPIC] }),
      'create partitions': (admin) => admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: 2 }] }),
      'describe settings': (admin) => admin.describeConfigs({
        resources: [{ type: ConfigResourceTypes.TOPIC, name: TOPIC }], includeSynonyms: false,
      }),
      'describe groups': async (admin) => (await admin.describeGroups([`secured-kafkajs-${user}`])).groups
        .map((group) => [group.errorCode, group.state]),
      'delete groups': (admin) => admin.deleteGroups(['secured-kafkajs-x']),
      'offsets of a group': (admin) => admin.fetchOffsets({ groupId: 'secured-kafkajs-x', topics: [TOPIC] }),
      'describe ACLs': (admin) => admin.describeAcls({
        resourceType: AclResourceTypes.ANY, resourcePatternType: ResourcePatternTypes.ANY,
        operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY,
      }),
    };
    for (const [what, call] of Object.entries(calls)) {
      await step(`denied: ${user}, ${what}`, () => withAdmin(kafka, call));
    }
  }
}

async function revoked() {
  const right = {
    resourceType: AclResourceTypes.TOPIC, resourceName: TOPIC, resourcePatternType: ResourcePatternTypes.LITERAL,
    principal: `User:${PREFIX}revoked`, host: '*', operation: AclOperationTypes.WRITE,
    permissionType: AclPermissionTypes.ALLOW,
  };
  const admin = new Kafka({
    brokers: [process.argv[2]], logLevel: logLevel.NOTHING, connectionTimeout: PATIENCE,
  }).admin();
  await admin.connect();
  await admin.createAcls({ acl: [right] });
  await settle(process.argv[2]);
  const producer = client(USUAL, `${PREFIX}revoked`).producer({ retry: { retries: 1 } });
  await producer.connect();
  const write = async () => {
    await producer.send({ topic: TOPIC, messages: [{ partition: 0, value: 'v' }] });
    return 'sent';
  };
  await step('revoked: may', write);
  await admin.deleteAcls({ filters: [right] });
  await settle(process.argv[2]);
  await step('revoked: may no longer', write);
  await admin.createAcls({ acl: [right] });
  await settle(process.argv[2]);
  await step('revoked: may again', write);
  await producer.disconnect();
  await admin.disconnect();
}

async function waiting() {
  await step('throttled: a producer', async () => {
    const producer = client(USUAL, `${PREFIX}slow`).producer();
    await producer.connect();
    const began = Date.now();
    for (let i = 0; i < 5; i += 1) {
      await producer.send({ topic: TOPIC, messages: [{ partition: 0, value: 'v'.repeat(1_500) }] });
    }
    await producer.disconnect();
    return Date.now() - began > 500;
  });
  for (const mechanism of ['plain', 'scram-sha-256', 'scram-sha-512']) {
    await step(`sessions: SASL_PLAINTEXT ${mechanism}`, async () => {
      const producer = client(['reauth', 'SASL_PLAINTEXT', mechanism], 'alice').producer();
      await producer.connect();
      for (let i = 0; i < 8; i += 1) {
        await producer.send({ topic: TOPIC, messages: [{ partition: 0, value: 'v' }] });
        await sleep(400);
      }
      await producer.disconnect();
      return 'all sent';
    });
  }
}

(async () => {
  await allowed();
  await refused();
  await denied();
  await revoked();
  await waiting();
  process.exit(0);
})();
