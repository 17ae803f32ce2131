"""What commands need besides the image: the controller's own configs, and randomness."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.config.listeners import parse_voters
from dohle.core.config.static import BrokerConfig
from dohle.core.config.topic import TOPIC_CONFIGS
from dohle.core.ids import BrokerId, TopicName
from dohle.core.seams import Rng
from dohle.metadata.image import ClusterImage

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"
_MIN_INSYNC_REPLICAS_DEFAULT = TOPIC_CONFIGS[MIN_INSYNC_REPLICAS].default_text or "1"


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What stays the same for a controller as long as its node runs."""

    config: BrokerConfig
    cluster_id: str
    rng: Rng

    @property
    def node_id(self) -> BrokerId:
        """The controller's own id."""
        return self.config.node_id

    @property
    def static_voters(self) -> frozenset[BrokerId]:
        """The controllers that the configuration names."""
        voters = parse_voters(self.config.values.get_list("controller.quorum.voters"))
        return frozenset(BrokerId(voter.id) for voter in voters)

    def min_insync_replicas(self, image: ClusterImage, topic: TopicName) -> int:
        """Return how many replicas of a topic must be in sync.

        The controller needs it only for eligible leader replicas. If these are enabled, the log has
        a value for the cluster (see ``bootstrap`` and ``configs``), so all controllers agree.
        """
        return int(self._altered(image, topic, MIN_INSYNC_REPLICAS) or _MIN_INSYNC_REPLICAS_DEFAULT)

    def allows_unclean_election(self, image: ClusterImage, topic: TopicName) -> bool:
        """Tell whether a replica that is not in sync may lead a partition of the topic."""
        altered = self._altered(image, topic, UNCLEAN_LEADER_ELECTION)
        return altered is not None and altered.lower() == "true"

    def _altered(self, image: ClusterImage, topic: TopicName, name: str) -> str | None:
        """Return the value in the log. Both configs have the same name for topic and broker.

        As in Kafka, a broker's own value is that of the active controller's id. The controller's
        properties file does not count: the value would change with every failover.
        """
        levels = (
            image.topic_config(topic),
            image.broker_config(self.node_id),
            image.cluster_config(),
        )
        return next((level[name] for level in levels if name in level), None)
