// What the scripts of this folder share: a topic, a reader that remembers, and words for what it saw.
'use strict';

const clients = require('./clients');

const DEADLINE_MS = 30000;
const LOOK_AGAIN_MS = 10;
const PARTITIONS = 4;

async function until(what, condition) {
  const giveUp = Date.now() + DEADLINE_MS;
  while (!condition()) {
    if (Date.now() > giveUp) throw new Error(`it did not happen in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

class Reader {
  constructor(client, topic, group) {
    this.topic = topic;
    this.consumer = client.consumer(group);
    this.records = [];
    this.ends = new Map();
  }

  async start() {
    await this.consumer.start(this.topic, async ({ partition, message }) => {
      this.records.push({ partition, message });
      this.ends.set(partition, String(Number(message.offset) + 1));
    });
    return this;
  }

  offsets() {
    return [...this.ends].map(([partition, offset]) => ({ partition, offset }));
  }

  async commit() {
    await this.consumer.commit(this.offsets().map((each) => ({ topic: this.topic, ...each })));
  }

  lines() {
    return this.records
      .map(({ partition, message }) => {
        const headers = Object.entries(message.headers ?? {}).map((pair) => ` ${pair.join('=')}`);
        return `${partition}@${message.offset} ${message.key}=${message.value}${headers.join('')}`;
      })
      .sort();
  }

  values() {
    return this.records.map(({ message }) => String(message.value));
  }

  stop() {
    return this.consumer.stop();
  }
}

async function sendToEach(producer, topic, values, headers) {
  const messages = values.flatMap((value) => Array.from({ length: PARTITIONS }, (_, partition) => ({
    partition, key: `key ${partition}`, value: `${value} ${partition}`, headers,
  })));
  const answers = await producer.send({ topic, messages });
  return answers.map(({ partition, baseOffset }) => `${partition}@${baseOffset}`).sort();
}

async function sayCommitted(admin, groupId, topic) {
  const answer = await admin.fetchOffsets({ groupId, topics: [topic] });
  const offsets = answer.flatMap(({ partitions }) => partitions).filter(({ offset }) => offset >= 0);
  console.log('committed', ...offsets.map(({ partition, offset }) => `${partition}@${offset}`).sort());
}

// Runs a story with a client, and the name of a topic that it makes first.
async function tell(story) {
  const [name, bootstrap, topic] = process.argv.slice(2);
  const client = clients[name](bootstrap);
  const admin = client.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] });
  await story(client, topic, admin);
  await admin.disconnect();
}

function run(story) {
  tell(story).catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

module.exports = { PARTITIONS, Reader, run, sayCommitted, sendToEach, until };
