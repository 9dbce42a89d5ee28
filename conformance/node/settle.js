// What the scripts of kafkajs wait for. A controller's answer may come before the broker has taken the change over.

'use strict';

const net = require('net');

/** How long what is to come may take, in milliseconds, on a machine that does much else. */
const PATIENCE = 60_000;
const MARKER = `settled-${process.pid}`;
const SETTING = 'consumer.session.timeout.ms';
let values = 45_000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Ends the script: two brokers are not alike because both are waited for in vain. */
function giveUp(what) {
  process.stderr.write(`${what}\n`);
  process.exit(3);
}

function string(text) {
  const bytes = Buffer.alloc(2 + Buffer.byteLength(text));
  bytes.writeInt16BE(Buffer.byteLength(text));
  bytes.write(text, 2);
  return bytes;
}

function ask(socket, api, version, body) {
  const head = Buffer.alloc(12);
  const rest = Buffer.concat([string('settle'), body]);
  head.writeInt32BE(8 + rest.length);
  head.writeInt16BE(api, 4);
  head.writeInt16BE(version, 6);
  head.writeInt32BE(1, 8);
  return new Promise((resolve) => {
    let received = Buffer.alloc(0);
    const onData = (part) => {
      received = Buffer.concat([received, part]);
      if (received.length >= 4 && received.length >= 4 + received.readInt32BE(0)) {
        socket.off('data', onData);
        resolve(received.subarray(4));
      }
    };
    socket.on('data', onData);
    socket.write(Buffer.concat([head, rest]));
  });
}

/**
 * Waits until the only broker has applied every change before this call, as `Script.settle` of the Java scripts does: with
 * two changes of a group's setting (IncrementalAlterConfigs v0), each of which is then described (DescribeConfigs v1).
 */
async function settle(bootstrap) {
  const [host, port] = bootstrap.split(':');
  const socket = net.connect(Number(port), host);
  socket.on('error', (error) => giveUp(error.message));
  socket.on('end', () => giveUp('the broker has closed the connection'));
  socket.setTimeout(PATIENCE, () => giveUp(`no answer after ${PATIENCE} ms`));
  // One resource of the type of groups, and one setting of it.
  const resource = Buffer.concat([Buffer.from([0, 0, 0, 1, 32]), string(MARKER), Buffer.from([0, 0, 0, 1]), string(SETTING)]);
  const zero = Buffer.from([0]);
  for (let pass = 0; pass < 2; pass += 1) {
    values += 1;
    const value = string(String(values));
    const answer = await ask(socket, 44, 0, Buffer.concat([resource, zero, value, zero]));
    // After the correlation ID, the throttle time and the length of the array.
    const error = answer.readInt16BE(12);
    if (error !== 0) {
      giveUp(`the setting of a group is refused with error ${error}`);
    }
    const wanted = Buffer.concat([string(SETTING), value]);
    const began = Date.now();
    while (!(await ask(socket, 32, 1, Buffer.concat([resource, zero]))).includes(wanted)) {
      if (Date.now() - began > PATIENCE) {
        giveUp(`a change is not applied after ${PATIENCE} ms`);
      }
      await sleep(20);
    }
  }
  socket.destroy();
}

module.exports = { PATIENCE, giveUp, settle, sleep };
