// Writes by every codec the client brings along, and reads it back.
'use strict';

const { PARTITIONS, Reader, run, sendToEach, until } = require('./kit');

run(async (client, topic, admin) => {
  const listed = await admin.listTopics();
  console.log('listed', listed.includes(topic));
  for (const codec of client.codecs) {
    const producer = client.producer(codec);
    await producer.connect();
    const bases = await sendToEach(producer, topic, [`first ${codec}`, `second ${codec}`], { codec });
    console.log('wrote', codec, ...bases);
    await producer.disconnect();
  }
  const reader = await new Reader(client, topic, `${topic}.group`).start();
  await until('all is read', () => reader.records.length >= client.codecs.length * PARTITIONS * 2);
  await reader.stop();
  reader.lines().forEach((line) => console.log(line));
});
