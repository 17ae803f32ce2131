"""The remote tier: Kafka's ``kafka.server:type=BrokerTopicMetrics`` of remote storage (T17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dohle.metrics.exposition import family, labels
from dohle.server.metrics.sources import Sources
from dohle.tiering.planning import to_copy

_NAME = "kafka_server_brokertopicmetrics"
_COUNTS = {
    "remotecopybytes": "Bytes of segments copied to the remote tier.",
    "remotecopyrequests": "Copies to the remote tier that were begun.",
    "remotecopyerrors": "Those of them that failed.",
    "remotefetchbytes": "Bytes of records read from the remote tier.",
    "remotefetchrequests": "Reads of the remote tier that were begun.",
    "remotefetcherrors": "Those of them that failed.",
    "remotedeleterequests": "Deletions in the remote tier that were begun.",
    "remotedeleteerrors": "Those of them that failed.",
}
_GAUGES = {
    "remotecopylagbytes": "Bytes of closed segments that this broker leads and has not copied.",
    "remotecopylagsegments": "How many segments that are.",
    "remotelogsizebytes": "Bytes in the remote tier of what this broker leads.",
    "remotelogmetadatacount": "How many remote segments are known of what this broker leads.",
}


def collect_tier(sources: Sources) -> Iterator[str]:
    """Tell of all tiered topics; nothing, if there is no remote tier."""
    broker = sources.broker
    if broker is None or broker.tier is None:
        return
    tier = broker.tier
    totals, by_topic = tier.counts.totals, tier.counts.by_topic
    for name, doc in _COUNTS.items():
        samples = [("", getattr(totals, name))]
        samples += [
            (labels({"topic": topic}), getattr(counts, name)) for topic, counts in by_topic.items()
        ]
        yield from family(f"{_NAME}_{name}_total", "counter", doc, samples)
    gauges: dict[str, Counter[str]] = {name: Counter() for name in _GAUGES}
    for tasks in tier.led:
        log, topic = tasks.partition.log, tasks.partition.key.topic
        waiting = to_copy(tasks.extent(), log.highest_remote_offset)
        sizes = {segment.base_offset: segment.size for segment in log.segments}
        gauges["remotecopylagbytes"][topic] += sum(sizes.get(base, 0) for base, _ in waiting)
        gauges["remotecopylagsegments"][topic] += len(waiting)
        cache = tier.feed.cache(tasks.key)
        if cache is not None:
            gauges["remotelogsizebytes"][topic] += sum(each.size for each in cache)
            gauges["remotelogmetadatacount"][topic] += len(cache)
        yield ""
    for name, doc in _GAUGES.items():
        found = gauges[name]
        samples = [("", found.total())]
        samples += [(labels({"topic": topic}), value) for topic, value in found.items()]
        yield from family(f"{_NAME}_{name}", "gauge", doc, samples)
