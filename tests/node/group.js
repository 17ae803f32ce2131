// A second member joins and leaves; what one has committed, the next does not read again.
'use strict';

const { PARTITIONS, Reader, run, sayCommitted, sendToEach, until } = require('./kit');

async function settle(...readers) {
  const share = PARTITIONS / readers.length;
  await until('each has its share', () => readers.every(({ consumer }) => consumer.held() === share));
  console.log('settled', ...readers.map(({ consumer }) => consumer.held()));
}

async function commit(...readers) {
  for (const reader of readers) await reader.commit();
}

run(async (client, topic, admin) => {
  const group = `${topic}.group`;
  const producer = client.producer('none');
  await producer.connect();
  const first = await new Reader(client, topic, group).start();
  await settle(first);
  const second = await new Reader(client, topic, group).start();
  await settle(first, second);

  await sendToEach(producer, topic, ['a', 'b', 'c']);
  await until('both read', () => first.records.length + second.records.length >= 3 * PARTITIONS);
  console.log('read', first.records.length, second.records.length);
  await commit(first, second);
  await second.stop();
  await settle(first);

  await sendToEach(producer, topic, ['d', 'e']);
  await until('one reads on', () => first.records.length >= 3.5 * PARTITIONS);
  await commit(first);
  await first.stop();
  console.log(...[...first.values(), ...second.values()].sort());

  await sayCommitted(admin, group, topic);

  const last = await new Reader(client, topic, group).start();
  await settle(last);
  await sendToEach(producer, topic, ['f']);
  await until('the last reads', () => last.records.length >= PARTITIONS);
  await last.stop();
  await producer.disconnect();
  console.log(...last.values().sort());
});
