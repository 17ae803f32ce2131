"""Copying from other brokers, and changes of ISRs, by Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.core.ids import BrokerId
from dohle.metrics.exposition import family, labels, single
from dohle.server.metrics.sources import Sources

_MANAGER = "kafka_server_replicafetchermanager"


def collect_replication(sources: Sources) -> Iterator[str]:
    """Tell how replicas are kept alike."""
    broker = sources.broker
    if broker is None:
        return
    commits = broker.commits
    for name, doc, value in (
        ("isrexpands", "Followers that came into an ISR.", commits.isr_expands),
        ("isrshrinks", "Times that followers left an ISR.", commits.isr_shrinks),
        ("failedisrupdates", "ISRs that the controller refused.", commits.failed_isr_updates),
    ):
        yield from single(f"kafka_server_replicamanager_{name}_total", "counter", doc, value)
    fetchers = broker.replicas.fetchers.all
    lags: list[tuple[str, int]] = []
    worst = failed = 0
    for fetcher in fetchers:
        failed += len(fetcher.counts.failed)
        for partition, lag in list(fetcher.counts.lags.items()):
            worst = max(worst, lag)
            if sources.per_partition:
                topic, index = partition.key
                of = {"clientId": fetcher.name, "topic": topic, "partition": index}
                lags.append((labels(of), lag))
        yield ""
    whole = labels({"clientId": "Replica"})
    for name, doc, value in (
        ("maxlag", "Records that the furthest replica is behind its leader.", worst),
        ("failedpartitionscount", "Replicas that cannot be copied.", failed),
    ):
        yield from family(f"{_MANAGER}_{name}", "gauge", doc, [(whole, value)])
    yield from family(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "gauge",
        "Records that a replica is behind its leader's high watermark.",
        lags,
    )
    for name, doc, counted in (
        ("requests", "Fetches that a leader has answered.", [f.counts.requests for f in fetchers]),
        ("bytes", "Bytes of records copied from a leader.", [f.counts.bytes for f in fetchers]),
    ):
        yield from family(
            f"kafka_server_fetcherstats_{name}_total",
            "counter",
            doc,
            [
                (labels({"clientId": each.name, **_place(sources, each.leader)}), value)
                for each, value in zip(fetchers, counted, strict=True)
            ],
        )


def _place(sources: Sources, leader: BrokerId) -> dict[str, object]:
    """Return where a leader is, as far as is known."""
    assert sources.broker is not None
    found = sources.broker.replicas.fetchers.address_of(leader)
    return {} if found is None else {"brokerHost": found.host, "brokerPort": found.port}
