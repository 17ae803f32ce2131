"""What commands need beside the image: the controller's own configs, and chance."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId, TopicName
from dohle.core.seams import Rng
from dohle.metadata.image import ClusterImage

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """One for a node, for as long as it runs."""

    config: BrokerConfig
    cluster_id: str
    rng: Rng
    #: The quorum's, which would be in its control records: without one of them it is 0.
    kraft_version: int = 0

    @property
    def node_id(self) -> BrokerId:
        """The controller's own id."""
        return self.config.node_id

    def min_insync_replicas(self, image: ClusterImage, topic: TopicName) -> int:
        """Return how many replicas of a topic must be in sync."""
        altered = self._altered(image, topic, MIN_INSYNC_REPLICAS)
        return int(altered) if altered else self.config.get_int(MIN_INSYNC_REPLICAS)

    def allows_unclean_election(self, image: ClusterImage, topic: TopicName) -> bool:
        """Tell whether a replica that is not in sync may lead a partition of the topic."""
        altered = self._altered(image, topic, UNCLEAN_LEADER_ELECTION)
        return altered is not None and altered.lower() == "true"

    def _altered(self, image: ClusterImage, topic: TopicName, name: str) -> str | None:
        # Both of these are called the same at the topic and at the broker.
        levels = (
            image.topic_config(topic),
            image.broker_config(self.node_id),
            image.cluster_config(),
        )
        return next((level[name] for level in levels if name in level), None)
