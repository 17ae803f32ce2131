"""What goes in and out, by topic and in all: Kafka's ``kafka.server:type=BrokerTopicMetrics``.

Each name has a series for each topic, which goes with the topic, and one without a label for all,
which never goes down: dashboards use the former, alerts the latter.
"""

from __future__ import annotations

from collections.abc import Iterator

from dohle.metrics.exposition import family, labels, single
from dohle.metrics.traffic import Traffic
from dohle.server.metrics.sources import Sources

_NAME = "kafka_server_brokertopicmetrics"
_RECORDS, _BYTES = "messagesin", "bytesin"
_COUNTS = {
    "bytesout": ("bytes_out", "Bytes of records that clients have fetched."),
    "bytesrejected": ("bytes_rejected", "Bytes of records that were refused as too large."),
    "totalproducerequests": ("produce_requests", "Produce requests, counted by partition."),
    "failedproducerequests": ("failed_produce_requests", "Those of them that were refused."),
    "totalfetchrequests": ("fetch_requests", "Fetch requests, counted by partition."),
    "failedfetchrequests": ("failed_fetch_requests", "Those of them that were refused."),
    "producemessageconversions": (
        "produce_conversions",
        "Records that were converted from an older format.",
    ),
    "fetchmessageconversions": (
        "fetch_conversions",
        "Answers whose records were converted to an older format.",
    ),
    "replicationbytesin": ("replication_bytes_in", "Bytes of records copied from leaders."),
    "replicationbytesout": ("replication_bytes_out", "Bytes of records that followers fetched."),
    "reassignmentbytesin": (
        "reassignment_bytes_in",
        "Bytes of records that replicas being added here have fetched.",
    ),
    "reassignmentbytesout": (
        "reassignment_bytes_out",
        "Bytes of records that replicas being added elsewhere have fetched.",
    ),
}
#: Kafka tells these of all topics together.
_TOTALS = {
    "invalidmessagecrcrecords": (
        "invalid_checksums",
        "Batches that were refused for their checksum.",
    ),
    "invalidmagicnumberrecords": (
        "invalid_magic",
        "Messages that were refused for being of another format than those around them.",
    ),
    "invalidoffsetorsequencerecords": (
        "invalid_offsets",
        "Batches that were refused for their offsets or their sequence number.",
    ),
    "nokeycompactedtopicrecords": (
        "no_key",
        "Records without a key that compacted topics have refused, up to 1,000 of a batch.",
    ),
}


def collect_topics(sources: Sources) -> Iterator[str]:
    """Tell of all topics."""
    if sources.broker is None:
        return
    partitions = sources.broker.partitions
    totals = Traffic()
    totals.add(partitions.gone_traffic)
    records, size = partitions.gone_records, partitions.gone_bytes
    by_topic: list[tuple[str, Traffic, int, int]] = []
    for name in partitions.topics:
        traffic, topic_records, topic_bytes = Traffic(), 0, 0
        for partition in list(partitions.of_topic(name).values()):
            traffic.add(partition.traffic)
            topic_records += partition.log.appended_records
            topic_bytes += partition.log.appended_bytes
            yield ""
        by_topic.append((labels({"topic": name}), traffic, topic_records, topic_bytes))
        totals.add(traffic)
        records += topic_records
        size += topic_bytes
    yield from family(
        f"{_NAME}_{_RECORDS}_total",
        "counter",
        "Records appended.",
        [("", records), *((label, count) for label, _, count, _ in by_topic)],
    )
    yield from family(
        f"{_NAME}_{_BYTES}_total",
        "counter",
        "Bytes of records appended.",
        [("", size), *((label, count) for label, _, _, count in by_topic)],
    )
    for metric, (attribute, doc) in _COUNTS.items():
        samples = [("", getattr(totals, attribute))]
        samples += [(label, getattr(traffic, attribute)) for label, traffic, _, _ in by_topic]
        yield from family(f"{_NAME}_{metric}_total", "counter", doc, samples)
    for metric, (attribute, doc) in _TOTALS.items():
        yield from single(f"{_NAME}_{metric}_total", "counter", doc, getattr(totals, attribute))
