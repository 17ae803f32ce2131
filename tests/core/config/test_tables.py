from __future__ import annotations

import pytest

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigKey, UpdateMode
from dohle.core.config.known import KNOWN_WITHOUT_EFFECT
from dohle.core.config.topic import TOPIC_CONFIGS

# Name, type, default and limits as Apache Kafka 4.2.1 documents them.
_TOPIC = """
cleanup.policy                  LIST    delete                [compact, delete]
compression.gzip.level          INT     -1                    [1,...,9] or -1
compression.lz4.level           INT     9                     [1,...,17]
compression.type STRING producer [uncompressed, zstd, lz4, snappy, gzip, producer]
compression.zstd.level          INT     3                     [-131072,...,22]
file.delete.delay.ms            LONG    60000                 [0,...]
flush.messages                  LONG    9223372036854775807   [1,...]
flush.ms                        LONG    9223372036854775807   [0,...]
index.interval.bytes            INT     4096                  [0,...]
max.message.bytes               INT     1048588               [0,...]
message.timestamp.after.max.ms  LONG    3600000               [0,...]
message.timestamp.before.max.ms LONG    9223372036854775807   [0,...]
message.timestamp.type          STRING  CreateTime            [CreateTime, LogAppendTime]
min.insync.replicas             INT     1                     [1,...]
preallocate                     BOOLEAN false
retention.bytes                 LONG    -1
retention.ms                    LONG    604800000             [-1,...]
segment.bytes                   INT     1073741824            [1048576,...]
segment.index.bytes             INT     10485760              [4,...]
segment.jitter.ms               LONG    0                     [0,...]
segment.ms                      LONG    604800000             [1,...]
"""
_BROKER = """
add.partitions.to.txn.retry.backoff.max.ms                  INT     100         [0,...]
add.partitions.to.txn.retry.backoff.ms                      INT     20          [1,...]
advertised.listeners                            LIST    null
auto.create.topics.enable                       BOOLEAN true
broker.rack                                     STRING  null
compression.gzip.level                          INT     -1          [1,...,9] or -1
compression.lz4.level                           INT     9           [1,...,17]
compression.type STRING producer [uncompressed, zstd, lz4, snappy, gzip, producer]
compression.zstd.level                          INT     3           [-131072,...,22]
connections.max.idle.ms                         LONG    600000
controller.listener.names                       LIST    ""
controller.quorum.bootstrap.servers             LIST    ""
controller.quorum.voters                        LIST    ""
default.replication.factor                      INT     1
delete.topic.enable                             BOOLEAN true
fetch.max.bytes                                 INT     57671680    [1024,...]
group.consumer.assignors                                    LIST    uniform,range [uniform, range]
group.consumer.heartbeat.interval.ms                        INT     5000        [1,...]
group.consumer.max.heartbeat.interval.ms                    INT     15000       [1,...]
group.consumer.max.session.timeout.ms                       INT     60000       [1,...]
group.consumer.max.size                                     INT     2147483647  [1,...]
group.consumer.migration.policy STRING bidirectional [bidirectional, disabled, downgrade, upgrade]
group.consumer.min.heartbeat.interval.ms                    INT     5000        [1,...]
group.consumer.min.session.timeout.ms                       INT     45000       [1,...]
group.consumer.regex.refresh.interval.ms                    INT     600000      [10000,...]
group.consumer.session.timeout.ms                           INT     45000       [1,...]
group.coordinator.rebalance.protocols LIST classic,consumer [classic, consumer, share, streams]
group.initial.rebalance.delay.ms                            INT     3000
group.max.session.timeout.ms                                INT     1800000
group.max.size                                              INT     2147483647  [1,...]
group.min.session.timeout.ms                                INT     6000
inter.broker.listener.name                      STRING  null
listener.security.protocol.map STRING \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners                                       LIST    PLAINTEXT://:9092
log.cleanup.policy                              LIST    delete      [compact, delete]
log.dir                                         LIST    /tmp/kafka-logs
log.dirs                                        LIST    null
log.flush.interval.messages                     LONG    9223372036854775807 [1,...]
log.flush.interval.ms                           LONG    null
log.flush.offset.checkpoint.interval.ms         INT     60000       [0,...]
log.flush.scheduler.interval.ms                 LONG    9223372036854775807
log.flush.start.offset.checkpoint.interval.ms   INT     60000       [0,...]
log.index.interval.bytes                        INT     4096        [0,...]
log.index.size.max.bytes                        INT     10485760    [4,...]
log.initial.task.delay.ms                       LONG    30000       [0,...]
log.message.timestamp.after.max.ms              LONG    3600000     [0,...]
log.message.timestamp.before.max.ms             LONG    9223372036854775807 [0,...]
log.message.timestamp.type                      STRING  CreateTime  [CreateTime, LogAppendTime]
log.preallocate                                 BOOLEAN false
log.retention.bytes                             LONG    -1
log.retention.check.interval.ms                 LONG    300000      [1,...]
log.retention.hours                             INT     168
log.retention.minutes                           INT     null
log.retention.ms                                LONG    null
log.roll.hours                                  INT     168         [1,...]
log.roll.jitter.hours                           INT     0           [0,...]
log.roll.jitter.ms                              LONG    null
log.roll.ms                                     LONG    null
log.segment.bytes                               INT     1073741824  [1048576,...]
log.segment.delete.delay.ms                     LONG    60000       [0,...]
max.connections                                 INT     2147483647  [0,...]
max.connections.per.ip                          INT     2147483647  [0,...]
max.incremental.fetch.session.cache.slots       INT     1000        [0,...]
max.request.partition.size.limit                INT     2000        [1,...]
message.max.bytes                               INT     1048588     [0,...]
metadata.log.dir                                STRING  null
metadata.log.max.record.bytes.between.snapshots LONG    20971520    [1,...]
metadata.log.max.snapshot.interval.ms           LONG    3600000     [0,...]
metadata.log.segment.bytes                      INT     1073741824  [8388608,...]
metadata.max.retention.bytes                    LONG    104857600
metadata.max.retention.ms                       LONG    604800000
min.insync.replicas                             INT     1           [1,...]
node.id                                         INT     null        [0,...]
num.partitions                                  INT     1           [1,...]
num.recovery.threads.per.data.dir INT 2 [1,...]
offset.metadata.max.bytes                                   INT     4096
offsets.commit.timeout.ms                                   INT     5000        [1,...]
offsets.load.buffer.size                                    INT     5242880     [1,...]
offsets.retention.check.interval.ms                         LONG    600000      [1,...]
offsets.retention.minutes                                   INT     10080       [1,...]
offsets.topic.compression.codec                             INT     0           [0,...,4]
offsets.topic.num.partitions                                INT     50          [1,...]
offsets.topic.replication.factor                            SHORT   3           [1,...]
offsets.topic.segment.bytes                                 INT     104857600   [1,...]
process.roles                                   LIST    null        [broker, controller]
producer.id.expiration.check.interval.ms        INT     600000      [1,...]
producer.id.expiration.ms                       INT     86400000    [1,...]
queued.max.request.bytes                        LONG    -1
queued.max.requests                             INT     500         [1,...]
replica.alter.log.dirs.io.max.bytes.per.second LONG 9223372036854775807 [1,...]
replica.high.watermark.checkpoint.interval.ms   LONG    5000
request.timeout.ms                              INT     30000       [1,...]
socket.listen.backlog.size                      INT     50          [1,...]
socket.request.max.bytes                        INT     104857600   [1,...]
transaction.abort.timed.out.transaction.cleanup.interval.ms INT     10000       [1,...]
transaction.max.timeout.ms                                  INT     900000      [1,...]
transaction.partition.verification.enable                   BOOLEAN true
transaction.remove.expired.transaction.cleanup.interval.ms  INT     3600000     [1,...]
transaction.state.log.load.buffer.size                      INT     5242880     [1,...]
transaction.state.log.min.isr                               INT     2           [1,...]
transaction.state.log.num.partitions                        INT     50          [1,...]
transaction.state.log.replication.factor                    SHORT   3           [1,...]
transaction.state.log.segment.bytes                         INT     104857600   [1,...]
transaction.two.phase.commit.enable                         BOOLEAN false
transactional.id.expiration.ms                              INT     604800000   [1,...]
"""
_ALL_KEYS = [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()]


def _row(key: ConfigKey) -> str:
    default = "null" if key.default is None else key.default_text or '""'
    return " ".join(f"{key.name} {key.type.name} {default} {key.validator or ''}".split())


def _rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def test_topic_configs_have_the_types_defaults_and_limits_of_kafka() -> None:
    assert [_row(key) for key in TOPIC_CONFIGS.values()] == _rows(_TOPIC)


def test_broker_configs_have_the_types_defaults_and_limits_of_kafka() -> None:
    assert [_row(key) for key in BROKER_CONFIGS.values()] == _rows(_BROKER)


def test_a_topic_falls_back_to_broker_configs_that_are_in_the_table() -> None:
    for key in TOPIC_CONFIGS.values():
        assert key.synonyms
        assert set(key.synonyms) <= BROKER_CONFIGS.keys()


def test_what_topics_fall_back_to_first_can_be_altered_and_the_other_units_cannot() -> None:
    for key in TOPIC_CONFIGS.values():
        first, *others = (BROKER_CONFIGS[name] for name in key.synonyms)
        assert first.update_mode is UpdateMode.CLUSTER_WIDE
        assert all(other.update_mode is UpdateMode.READ_ONLY for other in others)


def test_besides_the_defaults_of_topics_six_configs_can_be_altered_while_running() -> None:
    altered = {
        key.name for key in BROKER_CONFIGS.values() if key.update_mode is not UpdateMode.READ_ONLY
    }
    assert altered - {key.synonyms[0] for key in TOPIC_CONFIGS.values()} == {
        "max.connections",
        "max.connections.per.ip",
        "num.recovery.threads.per.data.dir",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "transaction.partition.verification.enable",
    }


@pytest.mark.parametrize("key", _ALL_KEYS, ids=lambda key: key.name)
def test_every_config_says_in_whole_sentences_what_it_does(key: ConfigKey) -> None:
    assert key.doc[0].isupper()
    assert key.doc.endswith(".")


@pytest.mark.parametrize("key", _ALL_KEYS, ids=lambda key: key.name)
def test_a_default_is_a_value_that_could_be_given(key: ConfigKey) -> None:
    if key.default_text:
        assert key.parse(key.default_text) == key.default


def test_no_config_has_an_effect_and_none() -> None:
    assert KNOWN_WITHOUT_EFFECT.isdisjoint(BROKER_CONFIGS)


def test_the_configs_without_effect_are_broker_configs_not_topic_configs() -> None:
    assert KNOWN_WITHOUT_EFFECT.isdisjoint(TOPIC_CONFIGS)
    assert {"num.io.threads", "ssl.keystore.location", "num.network.threads"} <= (
        KNOWN_WITHOUT_EFFECT
    )
