"""Requests of every API that needs a right, with the rights that they need (section 6)."""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.acls import AclOperation
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, GroupId, TopicName, TransactionalId
from dohle.metadata.image import ResourceType
from dohle.protocol.messages import alter_configs, incremental_alter_configs
from dohle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from dohle.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dohle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dohle.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.describe_acls import DescribeAclsRequest
from dohle.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from dohle.protocol.messages.describe_groups import DescribeGroupsRequest
from dohle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from dohle.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dohle.protocol.messages.describe_quorum import DescribeQuorumRequest
from dohle.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from dohle.protocol.messages.describe_topic_partitions import TopicRequest as NamedTopic
from dohle.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dohle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from dohle.protocol.messages.end_txn import EndTxnRequest
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dohle.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dohle.protocol.messages.list_config_resources import ListConfigResourcesRequest
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dohle.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.messages.sync_group import SyncGroupRequest
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from dohle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from dohle.protocol.schema import Request
from tests.server.guards.authorized import (
    Right,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
)
from tests.server.wire import batch, produce_request

_ORDERS, _BILLING, _PAYMENTS = TopicName("orders"), GroupId("billing"), TransactionalId("payments")
_TOPIC, _GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_op = AclOperation


class Case(NamedTuple):
    """A request, the rights it needs, and the error that it gets without the last of them."""

    request: Request
    rights: tuple[Right, ...]
    code: ErrorCode
    version: int | None = None
    #: Whether a denial of the last right brings the same error.
    is_deniable: bool = True


_READ_TOPIC, _DESCRIBE_TOPIC = on_topic(_op.READ), on_topic(_op.DESCRIBE)
_READ_GROUP, _DESCRIBE_GROUP = on_group(_op.READ), on_group(_op.DESCRIBE)
_WRITE_TXN = on_transaction(_op.WRITE)

_DATA = (
    Case(produce_request("orders", batch(b"x")), (on_topic(_op.WRITE),), _TOPIC, 12),
    Case(
        FetchRequest(
            max_wait_ms=0,
            max_bytes=1,
            topics=(
                FetchTopic(topic=_ORDERS, partitions=(FetchPartition(partition_max_bytes=1),)),
            ),
        ),
        (_READ_TOPIC,),
        _TOPIC,
        12,
    ),
    Case(
        ListOffsetsRequest(
            topics=(
                ListOffsetsTopic(name=_ORDERS, partitions=(ListOffsetsPartition(timestamp=-1),)),
            )
        ),
        (_DESCRIBE_TOPIC,),
        _TOPIC,
    ),
    Case(
        OffsetForLeaderEpochRequest(
            topics=(OffsetForLeaderTopic(topic=_ORDERS, partitions=(OffsetForLeaderPartition(),)),)
        ),
        (_DESCRIBE_TOPIC,),
        _TOPIC,
    ),
    Case(
        OffsetForLeaderEpochRequest(
            topics=(OffsetForLeaderTopic(topic=_ORDERS, partitions=(OffsetForLeaderPartition(),)),)
        ),
        (on_cluster(_op.CLUSTER_ACTION),),
        _TOPIC,
    ),
    Case(MetadataRequest(topics=(MetadataRequestTopic(name=_ORDERS),)), (_DESCRIBE_TOPIC,), _TOPIC),
    Case(
        DescribeTopicPartitionsRequest(topics=(NamedTopic(name=_ORDERS),)),
        (_DESCRIBE_TOPIC,),
        _TOPIC,
    ),
    Case(
        DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name=_ORDERS, partitions=(DeleteRecordsPartition(),)),),
            timeout_ms=1000,
        ),
        (on_topic(_op.DELETE),),
        _TOPIC,
    ),
    Case(
        DescribeProducersRequest(topics=(TopicRequest(name=_ORDERS, partition_indexes=(0,)),)),
        (_READ_TOPIC,),
        _TOPIC,
    ),
)

_COMMIT = OffsetCommitRequest(
    group_id=_BILLING,
    topics=(OffsetCommitRequestTopic(name=_ORDERS, partitions=(OffsetCommitRequestPartition(),)),),
)
_TXN_COMMIT = TxnOffsetCommitRequest(
    transactional_id=_PAYMENTS,
    group_id=_BILLING,
    topics=(
        TxnOffsetCommitRequestTopic(name=_ORDERS, partitions=(TxnOffsetCommitRequestPartition(),)),
    ),
)
_OFFSET_FETCH = OffsetFetchRequest(
    groups=(
        OffsetFetchRequestGroup(
            group_id=_BILLING,
            topics=(OffsetFetchRequestTopics(name=_ORDERS, partition_indexes=(0,)),),
        ),
    )
)
_OFFSET_DELETE = OffsetDeleteRequest(
    group_id=_BILLING,
    topics=(OffsetDeleteRequestTopic(name=_ORDERS, partitions=(OffsetDeleteRequestPartition(),)),),
)
_CONSUMER_HEARTBEAT = ConsumerGroupHeartbeatRequest(
    group_id=GroupId("new"),
    member_id="m",
    rebalance_timeout_ms=1000,
    subscribed_topic_names=(_ORDERS,),
    topic_partitions=(),
)
_GROUPS = (
    Case(
        JoinGroupRequest(
            group_id=_BILLING,
            session_timeout_ms=6000,
            rebalance_timeout_ms=1000,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        ),
        (_READ_GROUP,),
        _GROUP,
    ),
    Case(
        SyncGroupRequest(group_id=_BILLING, protocol_type="c", protocol_name="r"),
        (_READ_GROUP,),
        _GROUP,
    ),
    Case(HeartbeatRequest(group_id=_BILLING), (_READ_GROUP,), _GROUP),
    Case(
        LeaveGroupRequest(group_id=_BILLING, members=(MemberIdentity(member_id="m"),)),
        (_READ_GROUP,),
        _GROUP,
    ),
    Case(_CONSUMER_HEARTBEAT, (on_group(_op.READ, "new"),), _GROUP),
    Case(_CONSUMER_HEARTBEAT, (on_group(_op.READ, "new"), _DESCRIBE_TOPIC), _TOPIC),
    Case(DescribeGroupsRequest(groups=(_BILLING,)), (_DESCRIBE_GROUP,), _GROUP),
    Case(ConsumerGroupDescribeRequest(group_ids=(_BILLING,)), (_DESCRIBE_GROUP,), _GROUP),
    Case(DeleteGroupsRequest(groups_names=(_BILLING,)), (on_group(_op.DELETE),), _GROUP),
    Case(_COMMIT, (_READ_GROUP,), _GROUP, 9),
    Case(_COMMIT, (_READ_GROUP, _READ_TOPIC), _TOPIC, 9),
    Case(_OFFSET_FETCH, (_DESCRIBE_GROUP,), _GROUP, 9),
    Case(_OFFSET_FETCH, (_DESCRIBE_GROUP, _DESCRIBE_TOPIC), _TOPIC, 9),
    Case(_OFFSET_DELETE, (on_group(_op.DELETE),), _GROUP),
    Case(_OFFSET_DELETE, (on_group(_op.DELETE), _READ_TOPIC), _TOPIC),
    Case(
        FindCoordinatorRequest(key_type=0, coordinator_keys=("billing",)),
        (_DESCRIBE_GROUP,),
        _GROUP,
    ),
    Case(FindCoordinatorRequest(key="billing"), (_DESCRIBE_GROUP,), _GROUP, 3),
)

_TRANSACTIONS = (
    Case(
        FindCoordinatorRequest(key_type=1, coordinator_keys=("payments",)),
        (on_transaction(_op.DESCRIBE),),
        _TXN,
    ),
    Case(
        FindCoordinatorRequest(key_type=2, coordinator_keys=("share:x:0",)),
        (on_cluster(_op.CLUSTER_ACTION),),
        _CLUSTER,
    ),
    Case(
        InitProducerIdRequest(transactional_id=_PAYMENTS, transaction_timeout_ms=1000),
        (_WRITE_TXN,),
        _TXN,
    ),
    Case(
        InitProducerIdRequest(transactional_id=None), (on_cluster(_op.IDEMPOTENT_WRITE),), _CLUSTER
    ),
    Case(InitProducerIdRequest(transactional_id=None), (on_topic(_op.WRITE, "any"),), _CLUSTER),
    Case(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=_PAYMENTS,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=_ORDERS, partitions=(0,)),),
        ),
        (_WRITE_TXN,),
        _TXN,
        3,
    ),
    Case(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=_PAYMENTS,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=_ORDERS, partitions=(0,)),),
        ),
        (_WRITE_TXN, on_topic(_op.WRITE)),
        _TOPIC,
        3,
    ),
    Case(AddPartitionsToTxnRequest(), (on_cluster(_op.CLUSTER_ACTION),), _CLUSTER),
    Case(
        AddOffsetsToTxnRequest(transactional_id=_PAYMENTS, group_id=_BILLING), (_WRITE_TXN,), _TXN
    ),
    Case(
        AddOffsetsToTxnRequest(transactional_id=_PAYMENTS, group_id=_BILLING),
        (_WRITE_TXN, _READ_GROUP),
        _GROUP,
    ),
    Case(EndTxnRequest(transactional_id=_PAYMENTS), (_WRITE_TXN,), _TXN),
    Case(_TXN_COMMIT, (_WRITE_TXN,), _TXN),
    Case(_TXN_COMMIT, (_WRITE_TXN, _READ_GROUP), _GROUP),
    Case(_TXN_COMMIT, (_WRITE_TXN, _READ_GROUP, _READ_TOPIC), _TOPIC),
    Case(
        DescribeTransactionsRequest(transactional_ids=(_PAYMENTS,)),
        (on_transaction(_op.DESCRIBE),),
        _TXN,
    ),
    *(
        Case(
            WriteTxnMarkersRequest(
                markers=(
                    WritableTxnMarker(
                        topics=(WritableTxnMarkerTopic(name=_ORDERS, partition_indexes=(9,)),)
                    ),
                )
            ),
            (on_cluster(operation),),
            _CLUSTER,
        )
        for operation in (_op.ALTER, _op.CLUSTER_ACTION)
    ),
)


def _configs(kind: ResourceType, name: str, right: Right, code: ErrorCode) -> tuple[Case, ...]:
    altering = right._replace(operation=_op.ALTER_CONFIGS)
    return (
        Case(
            DescribeConfigsRequest(
                resources=(DescribeConfigsResource(resource_type=kind, resource_name=name),)
            ),
            (right,),
            code,
        ),
        Case(
            alter_configs.AlterConfigsRequest(
                resources=(
                    alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name),
                ),
                validate_only=True,
            ),
            (altering,),
            code,
        ),
        Case(
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=(
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=kind, resource_name=name
                    ),
                ),
                validate_only=True,
            ),
            (altering,),
            code,
        ),
    )


_SETTINGS = (
    *_configs(ResourceType.TOPIC, "orders", on_topic(_op.DESCRIBE_CONFIGS), _TOPIC),
    *_configs(ResourceType.GROUP, "billing", on_group(_op.DESCRIBE_CONFIGS), _GROUP),
    *_configs(ResourceType.BROKER, "", on_cluster(_op.DESCRIBE_CONFIGS), _CLUSTER),
    _configs(ResourceType.BROKER_LOGGER, "1", on_cluster(_op.DESCRIBE_CONFIGS), _CLUSTER)[0],
    _configs(ResourceType.BROKER_LOGGER, "1", on_cluster(_op.DESCRIBE_CONFIGS), _CLUSTER)[2],
)

_NEW = CreateTopicsRequest(
    topics=(CreatableTopic(name=TopicName("new"), num_partitions=1, replication_factor=1),),
    validate_only=True,
)
_MORE = CreatePartitionsRequest(
    topics=(CreatePartitionsTopic(name=_ORDERS, count=2, assignments=None),),
    timeout_ms=1000,
    validate_only=True,
)
_GONE = DeleteTopicsRequest(topics=(DeleteTopicState(name=TopicName("gone")),), timeout_ms=1000)
_TOPICS = (
    Case(_NEW, (on_cluster(_op.CREATE),), _TOPIC),
    Case(_NEW, (on_topic(_op.CREATE, "new"),), _TOPIC),
    Case(_GONE, (on_cluster(_op.DELETE),), _TOPIC),
    # Who may see it is told that it is not there.
    Case(_GONE, (on_topic(_op.DELETE, "gone"),), _TOPIC, is_deniable=False),
    Case(_MORE, (on_topic(_op.ALTER),), _TOPIC),
)

_ACL = AclCreation(
    resource_type=2,
    resource_name="x",
    principal="User:x",
    host="*",
    operation=3,
    permission_type=3,
)
_ANY_ACL = DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter="x",
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


def _on_cluster(operation: AclOperation, *requests: Request) -> tuple[Case, ...]:
    return tuple(Case(request, (on_cluster(operation),), _CLUSTER) for request in requests)


_ADMINISTRATION = (
    *_on_cluster(
        _op.DESCRIBE_CONFIGS,
        ListConfigResourcesRequest(),
        DescribeClientQuotasRequest(strict=False),
    ),
    *_on_cluster(
        _op.ALTER_CONFIGS,
        AlterClientQuotasRequest(
            entries=(
                AlterClientQuotasRequestEntryData(
                    entity=(EntityData(entity_type="user", entity_name="nobody"),),
                    ops=(OpData(key="producer_byte_rate", remove=True),),
                ),
            )
        ),
    ),
    *_on_cluster(
        _op.DESCRIBE,
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        DescribeUserScramCredentialsRequest(users=None),
        DescribeQuorumRequest(),
        ListPartitionReassignmentsRequest(topics=None),
        DescribeLogDirsRequest(topics=None),
    ),
    *_on_cluster(
        _op.ALTER,
        CreateAclsRequest(creations=(_ACL,)),
        DeleteAclsRequest(filters=(_ANY_ACL,)),
        AlterUserScramCredentialsRequest(
            deletions=(ScramCredentialDeletion(name="nobody", mechanism=1),)
        ),
        ElectLeadersRequest(topic_partitions=(TopicPartitions(topic=_ORDERS, partitions=(0,)),)),
        AlterPartitionReassignmentsRequest(),
        AlterReplicaLogDirsRequest(
            dirs=(
                AlterReplicaLogDir(
                    path="/nowhere",
                    topics=(AlterReplicaLogDirTopic(name=_ORDERS, partitions=(0,)),),
                ),
            )
        ),
        UpdateFeaturesRequest(
            feature_updates=(FeatureUpdateKey(feature="no.version", max_version_level=1),),
            validate_only=True,
        ),
        UnregisterBrokerRequest(broker_id=BrokerId(99)),
        AddRaftVoterRequest(cluster_id="other", timeout_ms=1000),
        RemoveRaftVoterRequest(cluster_id="other"),
    ),
)

ALL: dict[str, tuple[Case, ...]] = {
    "data": _DATA,
    "groups": _GROUPS,
    "transactions": _TRANSACTIONS,
    "settings": _SETTINGS,
    "topics": _TOPICS,
    "administration": _ADMINISTRATION,
}
