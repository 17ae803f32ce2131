"""What was copied, read and deleted in the remote tier, by topic: for metrics."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class TierCounts:
    """Of one topic, or of all; each is a counter of Kafka's BrokerTopicMetrics."""

    remotecopybytes: int = 0
    remotecopyrequests: int = 0
    remotecopyerrors: int = 0
    remotefetchbytes: int = 0
    remotefetchrequests: int = 0
    remotefetcherrors: int = 0
    remotedeleterequests: int = 0
    remotedeleteerrors: int = 0

    def add(self, more: TierCounts) -> None:
        """Add what others have counted."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(more, field.name))


class CountsByTopic:
    """Those of topics that are here, and of those that were."""

    def __init__(self) -> None:
        self._topics: dict[str, TierCounts] = {}
        self._gone = TierCounts()

    def of(self, topic: str) -> TierCounts:
        """Return those of a topic."""
        return self._topics.setdefault(topic, TierCounts())

    def forget(self, topic: str) -> None:
        """Keep those of a topic in the totals only: it is gone."""
        gone = self._topics.pop(topic, None)
        if gone is not None:
            self._gone.add(gone)

    @property
    def by_topic(self) -> dict[str, TierCounts]:
        """Those of the topics that are here."""
        return dict(self._topics)

    @property
    def totals(self) -> TierCounts:
        """Those of all topics: they never go down."""
        found = TierCounts()
        found.add(self._gone)
        for counts in self._topics.values():
            found.add(counts)
        return found
