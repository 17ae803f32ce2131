// Records and offsets of a transaction count together; those of an aborted one are never seen.
'use strict';

const { PARTITIONS, Reader, run, sayCommitted, sendToEach, until } = require('./kit');

run(async (client, topic, admin) => {
  const group = `${topic}.group`;
  const producer = client.producer('gzip', `${topic}.id`);
  await producer.connect();
  const reader = await new Reader(client, topic, group).start();
  let goal = 0;
  for (const [word, end] of [['kept', 'commit'], ['dropped', 'abort'], ['kept too', 'commit']]) {
    const transaction = await producer.transaction();
    await sendToEach(transaction, topic, [word]);
    if (reader.ends.size) {
      const topics = [{ topic, partitions: reader.offsets() }];
      await transaction.sendOffsets({ ...reader.consumer.inTransaction, topics });
    }
    await transaction[end]();
    console.log(word, end);
    if (end === 'commit') {
      goal += PARTITIONS;
      await until('it is read', () => reader.records.length >= goal);
    }
    await sayCommitted(admin, group, topic);
  }
  await reader.stop();
  await producer.disconnect();
  reader.lines().forEach((line) => console.log(line));
});
