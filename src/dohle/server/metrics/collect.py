"""One scrape: everything that is told, in pieces, so that others have their turns in between."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.server.metrics.broker import collect_broker
from dohle.server.metrics.cleaner import collect_cleaner
from dohle.server.metrics.groups import collect_groups
from dohle.server.metrics.log_counts import LogCounts
from dohle.server.metrics.network import collect_network
from dohle.server.metrics.partitions import collect_partitions
from dohle.server.metrics.process import collect_process
from dohle.server.metrics.quorum import collect_quorum
from dohle.server.metrics.quotas import collect_quotas
from dohle.server.metrics.replication import collect_replication
from dohle.server.metrics.requests import collect_requests
from dohle.server.metrics.sources import Sources
from dohle.server.metrics.tier import collect_tier
from dohle.server.metrics.topics import collect_topics
from dohle.server.metrics.transactions import collect_transactions


def collect(sources: Sources, logged: LogCounts) -> Iterator[str]:
    """Yield the text of all metrics, and now and then nothing, after a moment's work each."""
    yield from collect_process(sources, logged)
    yield from collect_broker(sources)
    yield from collect_quorum(sources)
    yield from collect_replication(sources)
    yield from collect_cleaner(sources)
    yield from collect_network(sources)
    yield from collect_requests(sources)
    yield from collect_quotas(sources)
    yield from collect_topics(sources)
    yield from collect_tier(sources)
    yield from collect_groups(sources)
    yield from collect_transactions(sources)
    yield from collect_partitions(sources)
