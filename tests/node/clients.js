// The clients, as far as they differ: how they are configured, and how a consumer tells what it holds.
'use strict';

const QUICK_MS = 100;
const SESSION_MS = 6000;

function kafkajs(bootstrap) {
  const { Kafka, CompressionTypes, logLevel } = require('kafkajs');
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
  return {
    codecs: Object.keys(codecs),
    admin: () => kafka.admin(),
    producer(codec, transactionalId) {
      const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId });
      const { send } = producer;
      producer.send = (record) => send({ compression: codecs[codec], ...record });
      return producer;
    },
    consumer(groupId) {
      const consumer = kafka.consumer({
        groupId,
        heartbeatInterval: QUICK_MS,
        maxWaitTimeInMs: QUICK_MS,
        rebalanceTimeout: SESSION_MS,
        sessionTimeout: SESSION_MS,
      });
      let held = [];
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        held = Object.values(payload.memberAssignment).flat();
      });
      return {
        start: async (topic, eachMessage) => {
          await consumer.connect();
          await consumer.subscribe({ topics: [topic], fromBeginning: true });
          await consumer.run({ autoCommit: false, eachMessage });
        },
        held: () => held.length,
        commit: (offsets) => consumer.commitOffsets(offsets),
        stop: () => consumer.disconnect(),
        inTransaction: { consumerGroupId: groupId },
      };
    },
  };
}

function confluent(bootstrap, protocol) {
  const { Kafka, logLevel } = require('@confluentinc/kafka-javascript').KafkaJS;
  const kafka = new Kafka({ kafkaJS: { brokers: [bootstrap], logLevel: logLevel.NOTHING } });
  const membership = protocol === 'consumer'
    ? { 'group.protocol': 'consumer' }
    : { 'heartbeat.interval.ms': QUICK_MS, 'session.timeout.ms': SESSION_MS };
  return {
    codecs: ['none', 'gzip', 'snappy', 'lz4'],
    admin: () => kafka.admin(),
    producer: (codec, transactionalId) => kafka.producer({
      // An undefined one would count as an id.
      kafkaJS: { idempotent: true, compression: codec, ...(transactionalId && { transactionalId }) },
    }),
    consumer(groupId) {
      const consumer = kafka.consumer({
        kafkaJS: { groupId, fromBeginning: true, autoCommit: false },
        'fetch.wait.max.ms': QUICK_MS,
        ...membership,
      });
      return {
        start: async (topic, eachMessage) => {
          await consumer.connect();
          await consumer.subscribe({ topic });
          await consumer.run({ eachMessage });
        },
        held: () => consumer.assignment().length,
        commit: (offsets) => consumer.commitOffsets(offsets),
        stop: () => consumer.disconnect(),
        inTransaction: { consumer },
      };
    },
  };
}

module.exports = {
  'kafkajs': kafkajs,
  'confluent-classic': (bootstrap) => confluent(bootstrap, 'classic'),
  'confluent-consumer': (bootstrap) => confluent(bootstrap, 'consumer'),
};
