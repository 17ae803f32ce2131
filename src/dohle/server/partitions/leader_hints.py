"""Telling a producer that has come to the wrong broker who leads, and where that is (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from dohle.server.partitions.appends import TOPIC_IDS
from dohle.server.partitions.read_replicas import node_endpoints

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

#: From this version of Produce on, errors name the leader.
_TELLS_LEADER = 10
_ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER.value


class LeaderHints:
    """The leaders that one answer names."""

    __slots__ = ("_broker", "_leaders", "_listener", "_version")

    def __init__(self, broker: BrokerServer, version: int, listener: str) -> None:
        self._broker = broker
        self._version = version
        self._listener = listener
        self._leaders: set[BrokerId] = set()

    def add(
        self, name: TopicName, topic_id: Uuid, part: PartitionProduceResponse
    ) -> PartitionProduceResponse:
        """Name the leader in the answer for a partition, if it is another broker."""
        if part.error_code != _ELSEWHERE or self._version < _TELLS_LEADER:
            return part
        broker = self._broker
        topic = name if self._version < TOPIC_IDS else broker.topic_name(topic_id)
        image = None if topic is None else broker.image.partition(topic, part.index)
        if image is None:
            return part
        self._leaders.add(image.leader)
        leader = LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)
        return part.replace(current_leader=leader)

    def locate(self, response: ProduceResponse) -> ProduceResponse:
        """Tell in the answer where the leaders are that were named."""
        if not self._leaders:
            return response
        image, leaders = self._broker.image, self._leaders
        return response.replace(
            node_endpoints=node_endpoints(image, leaders, self._listener, NodeEndpoint)
        )
