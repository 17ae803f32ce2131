"""Administration of the cluster itself: its brokers, its quorum, its features, its leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dohle.client.admin.cluster_values import (
    BrokerDescription,
    ClusterDescription,
    ElectionType,
    Features,
    QuorumDescription,
    QuorumReplica,
    UpgradeType,
    VoterKey,
)
from dohle.client.admin.requests import AdminRequests, sort_out
from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from dohle.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from dohle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from dohle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from dohle.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_METADATA_TOPIC = TopicName("__cluster_metadata")
_THE_QUORUM = DescribeQuorumRequest(
    topics=(
        DescribeQuorumRequestTopicData(
            topic_name=_METADATA_TOPIC,
            partitions=(DescribeQuorumRequestPartitionData(partition_index=0),),
        ),
    )
)


class ClusterAdmin(AdminRequests):
    """Describes the cluster as a whole, and changes it."""

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the cluster's id, controller and brokers."""

        async def ask(connection: Connection) -> ClusterDescription:
            if not connection.serves(DescribeClusterRequest):
                return await self._describe_by_metadata()
            fenced = include_fenced and connection.version_of(DescribeClusterRequest) >= 2
            answer = await connection.request(
                DescribeClusterRequest(include_fenced_brokers=fenced), DescribeClusterResponse
            )
            if answer.error_code:
                raise answered_error(
                    answer.error_code, "the cluster cannot be described", answer.error_message
                )
            brokers = tuple(
                BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
                for each in sorted(answer.brokers, key=lambda broker: broker.broker_id)
            )
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

        return await self._ask_any("describe cluster", ask)

    async def describe_features(self) -> Features:
        """Return the features that the cluster supports, and those in use."""

        async def ask(connection: Connection) -> Features:
            answer = await connection.ask_versions()
            return Features(
                {
                    each.name: (each.min_version, each.max_version)
                    for each in answer.supported_features
                },
                {
                    each.name: (each.min_version_level, each.max_version_level)
                    for each in answer.finalized_features
                },
                answer.finalized_features_epoch,
            )

        return await self._ask_any("describe features", ask)

    async def _describe_by_metadata(self) -> ClusterDescription:
        """Describe the cluster from metadata, for brokers before 2.8."""
        metadata = await self._cluster.refresh(())
        brokers = tuple(
            BrokerDescription(each.node_id, each.host, each.port, each.rack)
            for each in metadata.brokers.values()
        )
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, brokers)

    async def describe_quorum(self) -> QuorumDescription:
        """Return who votes in the quorum of controllers, who leads it, and how far all are."""

        async def ask(connection: Connection) -> QuorumDescription:
            answer = await connection.request(_THE_QUORUM, DescribeQuorumResponse)
            if answer.error_code:
                raise answered_error(
                    answer.error_code, "the quorum cannot be described", answer.error_message
                )
            return _quorum(answer)

        return await self._ask_quorum("describe quorum", self._cluster.any_connection, ask)

    async def add_voter(self, voter: VoterKey, endpoints: Mapping[str, Address]) -> None:
        """Let a controller vote that reads the quorum's log already, and has caught up (KIP-853).

        Endpoints are told by the names of their listeners.
        """
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._cluster.config.request_timeout_ms,
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
            listeners=tuple(
                Listener(name=name, host=address.host, port=address.port)
                for name, address in endpoints.items()
            ),
        )

        attempts = 0

        async def ask(connection: Connection) -> None:
            nonlocal attempts
            attempts += 1
            answer = await connection.request(request, AddRaftVoterResponse)
            is_there = attempts > 1 and answer.error_code == ErrorCode.DUPLICATE_VOTER
            # An attempt that has timed out may succeed later.
            if answer.error_code and not (is_there and await self._has_voter(voter)):
                what = f"controller {voter.node_id} cannot be added"
                raise answered_error(answer.error_code, what, answer.error_message)

        await self._ask_controller("add voter", ask)

    async def remove_voter(self, voter: VoterKey) -> None:
        """Let a controller not vote any more (KIP-853)."""
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter.node_id, voter_directory_id=voter.directory_id
        )

        attempts = 0

        async def ask(connection: Connection) -> None:
            nonlocal attempts
            attempts += 1
            answer = await connection.request(request, RemoveRaftVoterResponse)
            is_gone = attempts > 1 and answer.error_code == ErrorCode.VOTER_NOT_FOUND
            if answer.error_code and (not is_gone or await self._has_voter(voter)):
                what = f"controller {voter.node_id} cannot be removed"
                raise answered_error(answer.error_code, what, answer.error_message)

        await self._ask_controller("remove voter", ask)

    async def _has_voter(self, voter: VoterKey) -> bool:
        found = (await self.describe_quorum()).voters
        return voter in [VoterKey(each.node_id, each.directory_id) for each in found]

    async def unregister_broker(self, broker_id: int) -> None:
        """Have the cluster forget a broker that is gone for good."""
        request = UnregisterBrokerRequest(broker_id=BrokerId(broker_id))

        async def ask(connection: Connection) -> None:
            answer = await connection.request(request, UnregisterBrokerResponse)
            if answer.error_code:
                what = f"broker {broker_id} cannot be unregistered"
                raise answered_error(answer.error_code, what, answer.error_message)

        await self._ask_controller("unregister broker", ask)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize levels of features, all of them or none, or only check whether that works."""
        request = UpdateFeaturesRequest(
            timeout_ms=self._cluster.config.request_timeout_ms,
            feature_updates=tuple(
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
                for name, level in levels.items()
            ),
            validate_only=validate_only,
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.request(request, UpdateFeaturesResponse)
            if answer.error_code:
                what = "the features cannot be updated"
                raise answered_error(answer.error_code, what, answer.error_message)
            for each in answer.results:
                if each.error_code:
                    raise answered_error(each.error_code, each.feature, each.error_message)

        await self._ask_controller("update features", ask)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> Results[TopicPartition, bool]:
        """Have leaders elected, of all partitions by default.

        The result of a partition is False if it needed no election.
        """
        wanted: dict[TopicName, list[int]] = {}
        for topic, number in partitions or ():
            wanted.setdefault(topic, []).append(number)
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None
            if partitions is None
            else tuple(
                TopicPartitions(topic=topic, partitions=tuple(numbers))
                for topic, numbers in wanted.items()
            ),
            timeout_ms=self._cluster.config.request_timeout_ms,
        )

        async def ask(connection: Connection) -> Results[TopicPartition, bool]:
            answer = await connection.request(request, ElectLeadersResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, "no leaders can be elected")
            return _elected(answer)

        return await self._ask_controller("elect leaders", ask)


def _quorum(answer: DescribeQuorumResponse) -> QuorumDescription:
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise answered_error(
            found.error_code, "the quorum cannot be described", found.error_message
        )
    endpoints = {
        node.node_id: tuple(
            f"{each.name}://{Address(each.host, each.port)}" for each in node.listeners
        )
        for node in answer.nodes
    }

    def replica(state: ReplicaState) -> QuorumReplica:
        return QuorumReplica(
            state.replica_id,
            state.replica_directory_id,
            state.log_end_offset,
            state.last_fetch_timestamp,
            state.last_caught_up_timestamp,
            endpoints.get(state.replica_id, ()),
        )

    return QuorumDescription(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(map(replica, found.current_voters)),
        tuple(map(replica, found.observers)),
    )


def _elected(answer: ElectLeadersResponse) -> Results[TopicPartition, bool]:
    entries = []
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            key = TopicPartition(topic.topic, each.partition_id)
            needed = each.error_code != ErrorCode.ELECTION_NOT_NEEDED
            code = each.error_code if needed else 0
            entries.append((key, code, str(key), each.error_message, needed))
    return sort_out(entries)
