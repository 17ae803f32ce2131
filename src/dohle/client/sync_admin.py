"""The admin for programs without a loop: each method of :class:`dohle.client.Admin` waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from dohle.client.admin.admin import Admin as AsyncAdmin
from dohle.client.admin.cluster_values import (
    ClusterDescription,
    ElectionType,
    Features,
    PartitionReassignment,
    PartitionReplica,
    QuorumDescription,
    UpgradeType,
    VoterKey,
)
from dohle.client.admin.config_values import ConfigChange, ConfigEntry, ConfigResource
from dohle.client.admin.group_values import (
    GroupDescription,
    GroupListing,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from dohle.client.admin.log_dir_values import LogDirDescription
from dohle.client.admin.quotas import QuotaEntity, QuotaFilter
from dohle.client.admin.results import Results
from dohle.client.admin.topic_values import CreatedTopic, EligibleLeaders, NewTopic
from dohle.client.admin.users import UserPassword
from dohle.client.config import IsolationLevel
from dohle.client.consumer.offsets import OffsetInfo
from dohle.client.consumer.starts import EndStart
from dohle.client.group.offsets import OffsetAndMetadata
from dohle.client.loop_thread import loop_thread
from dohle.client.metadata import TopicInfo
from dohle.client.net.addresses import Address
from dohle.core.acls import Acl, AclFilter
from dohle.core.ids import BrokerId, ProducerId, TopicName, TopicPartition
from dohle.security.scram import ITERATIONS_MIN, ScramMechanism


class Admin:
    """Administration: the methods of :class:`dohle.client.Admin`, which wait for their results."""

    def __init__(
        self, bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        """Administer a cluster: where it is, and settings by name."""
        self._thread = loop_thread()

        async def make() -> AsyncAdmin:
            return AsyncAdmin(bootstrap, **settings)

        self._core = self._thread.call(make())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless others use them too."""
        self._thread.call(self._core.close())

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Results[TopicName, CreatedTopic]:
        """Create topics, or only check whether they could be created."""
        return self._thread.call(self._core.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Iterable[str]) -> Results[TopicName, None]:
        """Delete topics with all their records."""
        return self._thread.call(self._core.delete_topics(names))

    def list_topics(self) -> Mapping[TopicName, TopicInfo]:
        """Return all topics, including internal ones."""
        return self._thread.call(self._core.list_topics())

    def describe_topics(self, names: Iterable[str]) -> Results[TopicName, TopicInfo]:
        """Return the current state of some topics; asking does not create them."""
        return self._thread.call(self._core.describe_topics(names))

    def describe_eligible_leaders(
        self, names: Iterable[str]
    ) -> Mapping[TopicPartition, EligibleLeaders]:
        """Return who may lead the partitions of some topics besides their in-sync replicas.

        A topic that is not there has none. UNSUPPORTED_VERSION if no broker can tell.
        """
        return self._thread.call(self._core.describe_eligible_leaders(names))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> Results[TopicName, None]:
        """Raise the numbers of partitions to these counts.

        ``assignments`` gives the brokers of each new partition of a topic.
        """
        return self._thread.call(
            self._core.create_partitions(
                counts, assignments=assignments, validate_only=validate_only
            )
        )

    def list_offsets(
        self,
        starts: Mapping[TopicPartition, EndStart],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, OffsetInfo]:
        """Look up offsets; -1 if no record matches, such as none after a time.

        ``timeout_ms`` is the time for all of it, by default that of the client's settings.
        """
        return self._thread.call(
            self._core.list_offsets(starts, isolation_level=isolation_level, timeout_ms=timeout_ms)
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Results[TopicPartition, int]:
        """Delete all records before these offsets (-1: all); return the new log start offsets."""
        return self._thread.call(self._core.delete_records(before))

    def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Mapping[str, Iterable[int]] | None = None,
        with_cleaning: bool = False,
    ) -> Results[BrokerId, tuple[LogDirDescription, ...]]:
        """Return the log directories of brokers, by default of all, and the replicas in them.

        ``with_cleaning`` asks how far compacted logs are cleaned, which only dohle's brokers tell.
        """
        return self._thread.call(
            self._core.describe_log_dirs(broker_ids, topics=topics, with_cleaning=with_cleaning)
        )

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Results[ConfigResource, tuple[ConfigEntry, ...]]:
        """Return the configs of resources: all of them, or those with the given names."""
        return self._thread.call(
            self._core.describe_configs(
                resources,
                names=names,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
        )

    def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Replace all configs of resources: what is not given returns to its default."""
        return self._thread.call(self._core.alter_configs(configs, validate_only=validate_only))

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Change some configs of resources and leave the rest as they are."""
        return self._thread.call(
            self._core.incremental_alter_configs(changes, validate_only=validate_only)
        )

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> tuple[GroupListing, ...]:
        """Return all groups, or those in some states or of some types."""
        return self._thread.call(self._core.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Iterable[str]) -> Results[str, GroupDescription]:
        """Return groups with their members; one that does not exist is an error."""
        return self._thread.call(self._core.describe_groups(group_ids))

    def delete_groups(self, group_ids: Iterable[str]) -> Results[str, None]:
        """Delete groups without members, and their committed offsets."""
        return self._thread.call(self._core.delete_groups(group_ids))

    def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> Results[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets; partitions without one are left out."""
        return self._thread.call(
            self._core.list_group_offsets(group_id, partitions, require_stable=require_stable)
        )

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Results[TopicPartition, None]:
        """Commit offsets from outside the group; refused if it has members."""
        return self._thread.call(self._core.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets; refused for topics that the group subscribes to."""
        return self._thread.call(self._core.delete_group_offsets(group_id, partitions))

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> tuple[TransactionListing, ...]:
        """Return all transactional ids, or those that match."""
        return self._thread.call(
            self._core.list_transactions(
                states=states,
                producer_ids=producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                transactional_id_pattern=transactional_id_pattern,
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> Results[str, TransactionDescription]:
        """Return transactional ids with their transactions."""
        return self._thread.call(self._core.describe_transactions(transactional_ids))

    def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> Results[str, tuple[ProducerId, int]]:
        """Abort open transactions and fence the producers of these ids; return the new epochs."""
        return self._thread.call(self._core.fence_producers(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> Results[TopicPartition, tuple[ProducerDescription, ...]]:
        """Return the producers known to the partitions' leaders."""
        return self._thread.call(self._core.describe_producers(partitions))

    def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Write an abort marker to a partition, regardless of the coordinator."""
        self._thread.call(
            self._core.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch)
        )

    def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the cluster's id, controller and brokers."""
        return self._thread.call(self._core.describe_cluster(include_fenced=include_fenced))

    def describe_features(self) -> Features:
        """Return the features that the cluster supports, and those in use."""
        return self._thread.call(self._core.describe_features())

    def describe_quorum(self) -> QuorumDescription:
        """Return who votes in the quorum of controllers, who leads it, and how far all are."""
        return self._thread.call(self._core.describe_quorum())

    def add_voter(self, voter: VoterKey, endpoints: Mapping[str, Address]) -> None:
        """Let a controller vote that reads the quorum's log already, and has caught up (KIP-853).

        Endpoints are told by the names of their listeners.
        """
        self._thread.call(self._core.add_voter(voter, endpoints))

    def remove_voter(self, voter: VoterKey) -> None:
        """Let a controller not vote any more (KIP-853)."""
        self._thread.call(self._core.remove_voter(voter))

    def unregister_broker(self, broker_id: int) -> None:
        """Have the cluster forget a broker that is gone for good."""
        self._thread.call(self._core.unregister_broker(broker_id))

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize levels of features, all of them or none, or only check whether that works."""
        self._thread.call(
            self._core.update_features(
                levels, upgrade_type=upgrade_type, validate_only=validate_only
            )
        )

    def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> Results[TopicPartition, bool]:
        """Have leaders elected, of all partitions by default.

        The result of a partition is False if it needed no election.
        """
        return self._thread.call(self._core.elect_leaders(election_type, partitions))

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Results[TopicPartition, None]:
        """Begin to move partitions to these brokers, the preferred leader first.

        None in place of the brokers cancels the reassignment of a partition. Brokers before 4.1 do
        not know ``allow_replication_factor_change``.
        """
        return self._thread.call(
            self._core.alter_partition_reassignments(
                targets, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments that are going on: of these partitions, by default of all."""
        return self._thread.call(self._core.list_partition_reassignments(partitions))

    def alter_replica_log_dirs(
        self, places: Mapping[PartitionReplica, str]
    ) -> Results[PartitionReplica, None]:
        """Begin to move replicas to other directories of their brokers, by path.

        A broker that does not have a replica yet answers REPLICA_NOT_AVAILABLE, and remembers where
        to make it.
        """
        return self._thread.call(self._core.alter_replica_log_dirs(places))

    def describe_acls(self, wanted: AclFilter) -> tuple[Acl, ...]:
        """Return the ACLs that a filter matches."""
        return self._thread.call(self._core.describe_acls(wanted))

    def create_acls(self, acls: Iterable[Acl]) -> Results[Acl, None]:
        """Add ACLs; those that there are already are no error."""
        return self._thread.call(self._core.create_acls(acls))

    def delete_acls(self, filters: Iterable[AclFilter]) -> Results[AclFilter, tuple[Acl, ...]]:
        """Remove the ACLs that filters match, and return them."""
        return self._thread.call(self._core.delete_acls(filters))

    def describe_users(self, names: Iterable[str] = ()) -> Results[str, tuple[UserPassword, ...]]:
        """Return which passwords users have; of all users if none are named."""
        return self._thread.call(self._core.describe_users(names))

    def set_password(
        self, user: str, mechanism: ScramMechanism, password: str, iterations: int = ITERATIONS_MIN
    ) -> None:
        """Set a password; it does not leave this process, only what was computed from it."""
        self._thread.call(self._core.set_password(user, mechanism, password, iterations))

    def remove_password(self, user: str, mechanism: ScramMechanism) -> None:
        """Take a password away: nobody can log in with it any more."""
        self._thread.call(self._core.remove_password(user, mechanism))

    def describe_client_quotas(
        self, wanted: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of entities that all filters match; ``strict``: with nothing else."""
        return self._thread.call(self._core.describe_client_quotas(wanted, strict=strict))

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Results[QuotaEntity, None]:
        """Set the quotas of entities, by key; None removes one, if it is set."""
        return self._thread.call(
            self._core.alter_client_quotas(changes, validate_only=validate_only)
        )
