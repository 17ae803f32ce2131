"""Logs and replicas, partition by partition, by Kafka's names and those of kafka_exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dohle.metrics.exposition import family, labels
from dohle.server.metrics.sources import Sources
from dohle.server.partitions.partitions import Partition

#: Name, text, and how to tell the value.
_Gauge = tuple[str, str, Callable[[Partition], int]]

_OF_LOGS: tuple[_Gauge, ...] = (
    ("kafka_log_log_size", "The size of a log in bytes.", lambda p: p.log.size),
    ("kafka_log_log_logstartoffset", "The first offset.", lambda p: p.log.log_start_offset),
    ("kafka_log_log_logendoffset", "The next offset.", lambda p: p.log.log_end_offset),
    ("kafka_log_log_numlogsegments", "The segments of a log.", lambda p: len(p.log.segments)),
    (
        "dohle_log_unflushed_records",
        "Records of a log that no fsync has brought to the disk yet.",
        lambda p: p.log.log_end_offset - p.log.recovery_point,
    ),
)
_OF_LEADERS: tuple[_Gauge, ...] = (
    (
        "kafka_cluster_partition_replicascount",
        "The replicas of a partition.",
        lambda p: len(p.image.replicas),
    ),
    (
        "kafka_cluster_partition_insyncreplicascount",
        "The replicas that are in sync.",
        lambda p: len(p.image.isr),
    ),
    (
        "kafka_cluster_partition_underreplicated",
        "Whether a replica is not in sync.",
        lambda p: int(is_under_replicated(p)),
    ),
    (
        "kafka_cluster_partition_underminisr",
        "Whether fewer replicas than min.insync.replicas are in sync.",
        lambda p: int(p.is_under_min_isr),
    ),
    (
        "kafka_cluster_partition_atminisr",
        "Whether just min.insync.replicas are in sync.",
        lambda p: int(is_at_min_isr(p)),
    ),
    (
        "kafka_cluster_partition_laststableoffsetlag",
        "Records behind the last stable offset: of transactions that are not decided.",
        lambda p: p.log.high_watermark - p.log.last_stable_offset,
    ),
    (
        "kafka_topic_partition_current_offset",
        "The high watermark: the next offset that consumers will see.",
        lambda p: p.log.high_watermark,
    ),
    (
        "kafka_topic_partition_oldest_offset",
        "The first offset.",
        lambda p: p.log.log_start_offset,
    ),
    ("kafka_topic_partition_leader", "The broker that leads.", lambda p: p.image.leader),
    (
        "kafka_topic_partition_leader_is_preferred",
        "Whether the leader is the first of the replicas.",
        lambda p: int(p.image.leader == p.image.replicas[0]),
    ),
    (
        "kafka_topic_partition_replicas",
        "The replicas of a partition.",
        lambda p: len(p.image.replicas),
    ),
    (
        "kafka_topic_partition_in_sync_replica",
        "The replicas that are in sync.",
        lambda p: len(p.image.isr),
    ),
    (
        "kafka_topic_partition_under_replicated_partition",
        "Whether a replica is not in sync.",
        lambda p: int(is_under_replicated(p)),
    ),
)


def is_under_replicated(partition: Partition) -> bool:
    """Tell whether fewer are in sync than there are to be; as in Kafka, added ones do not count."""
    image = partition.image
    return len(image.isr) < len(image.replicas) - len(image.adding_replicas)


def is_at_min_isr(partition: Partition) -> bool:
    """Tell whether one replica less would be too few."""
    return len(partition.image.isr) == partition.replication.min_isr


def collect_partitions(sources: Sources) -> Iterator[str]:
    """Tell of every partition here, and of those that this broker leads more."""
    if sources.broker is None:
        return
    partitions = sources.broker.partitions
    yield from family(
        "kafka_topic_partitions",
        "gauge",
        "The partitions of a topic.",
        [
            (labels({"topic": topic.name}), len(topic.partitions))
            for topic in list(sources.broker.image.topics.values())
        ],
    )
    if not sources.per_partition:
        return
    logs: list[tuple[str, Partition]] = []
    for topic in partitions.topics:
        for index, partition in list(partitions.of_topic(topic).items()):
            logs.append((labels({"topic": topic, "partition": index}), partition))
            yield ""
    led = [(label, partition) for label, partition in logs if partition.is_led]
    for gauges, of in ((_OF_LOGS, logs), (_OF_LEADERS, led)):
        for name, doc, value in gauges:
            yield from family(
                name, "gauge", doc, ((label, value(partition)) for label, partition in of)
            )
