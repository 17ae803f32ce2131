"""Which messages there are, and where, without importing any of them.

Written by tools/import_schemas.py; do not edit. Read it through :mod:`dohle.protocol.apis`.
"""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    """The keys of requests, by Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


#: Key: name, module, versions, flexible versions, versions that the release itself serves,
#: listeners, and whether the release calls its latest version unstable.
APIS: dict[ApiKey, tuple[str, str, str, str, str, tuple[str, ...], bool]] = {
    ApiKey.PRODUCE: ("Produce", "produce", "0-13", "9+", "3-13", ("broker",), False),
    ApiKey.FETCH: ("Fetch", "fetch", "0-18", "12+", "4-18", ("broker", "controller"), False),
    ApiKey.LIST_OFFSETS: ("ListOffsets", "list_offsets", "0-11", "6+", "1-11", ("broker",), False),
    ApiKey.METADATA: ("Metadata", "metadata", "0-13", "9+", "0-13", ("broker",), False),
    ApiKey.LEADER_AND_ISR: ("LeaderAndIsr", "leader_and_isr", "0-7", "4+", "none", (), False),
    ApiKey.STOP_REPLICA: ("StopReplica", "stop_replica", "0-4", "2+", "none", (), False),
    ApiKey.UPDATE_METADATA: ("UpdateMetadata", "update_metadata", "0-8", "6+", "none", (), False),
    ApiKey.CONTROLLED_SHUTDOWN: (
        "ControlledShutdown",
        "controlled_shutdown",
        "0-3",
        "3+",
        "none",
        (),
        False,
    ),
    ApiKey.OFFSET_COMMIT: (
        "OffsetCommit",
        "offset_commit",
        "0-10",
        "8+",
        "2-10",
        ("broker",),
        False,
    ),
    ApiKey.OFFSET_FETCH: ("OffsetFetch", "offset_fetch", "0-10", "6+", "1-10", ("broker",), False),
    ApiKey.FIND_COORDINATOR: (
        "FindCoordinator",
        "find_coordinator",
        "0-6",
        "3+",
        "0-6",
        ("broker",),
        False,
    ),
    ApiKey.JOIN_GROUP: ("JoinGroup", "join_group", "0-9", "6+", "0-9", ("broker",), False),
    ApiKey.HEARTBEAT: ("Heartbeat", "heartbeat", "0-4", "4+", "0-4", ("broker",), False),
    ApiKey.LEAVE_GROUP: ("LeaveGroup", "leave_group", "0-5", "4+", "0-5", ("broker",), False),
    ApiKey.SYNC_GROUP: ("SyncGroup", "sync_group", "0-5", "4+", "0-5", ("broker",), False),
    ApiKey.DESCRIBE_GROUPS: (
        "DescribeGroups",
        "describe_groups",
        "0-6",
        "5+",
        "0-6",
        ("broker",),
        False,
    ),
    ApiKey.LIST_GROUPS: ("ListGroups", "list_groups", "0-5", "3+", "0-5", ("broker",), False),
    ApiKey.SASL_HANDSHAKE: (
        "SaslHandshake",
        "sasl_handshake",
        "0-1",
        "none",
        "0-1",
        ("broker", "controller"),
        False,
    ),
    ApiKey.API_VERSIONS: (
        "ApiVersions",
        "api_versions",
        "0-4",
        "3+",
        "0-4",
        ("broker", "controller"),
        False,
    ),
    ApiKey.CREATE_TOPICS: (
        "CreateTopics",
        "create_topics",
        "0-7",
        "5+",
        "2-7",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DELETE_TOPICS: (
        "DeleteTopics",
        "delete_topics",
        "0-6",
        "4+",
        "1-6",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DELETE_RECORDS: (
        "DeleteRecords",
        "delete_records",
        "0-2",
        "2+",
        "0-2",
        ("broker",),
        False,
    ),
    ApiKey.INIT_PRODUCER_ID: (
        "InitProducerId",
        "init_producer_id",
        "0-6",
        "2+",
        "0-6",
        ("broker",),
        True,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        "OffsetForLeaderEpoch",
        "offset_for_leader_epoch",
        "0-4",
        "4+",
        "2-4",
        ("broker",),
        False,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        "AddPartitionsToTxn",
        "add_partitions_to_txn",
        "0-5",
        "3+",
        "0-5",
        ("broker",),
        False,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        "AddOffsetsToTxn",
        "add_offsets_to_txn",
        "0-4",
        "3+",
        "0-4",
        ("broker",),
        False,
    ),
    ApiKey.END_TXN: ("EndTxn", "end_txn", "0-5", "3+", "0-5", ("broker",), False),
    ApiKey.WRITE_TXN_MARKERS: (
        "WriteTxnMarkers",
        "write_txn_markers",
        "0-2",
        "1+",
        "1-2",
        ("broker",),
        False,
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        "TxnOffsetCommit",
        "txn_offset_commit",
        "0-5",
        "3+",
        "0-5",
        ("broker",),
        False,
    ),
    ApiKey.DESCRIBE_ACLS: (
        "DescribeAcls",
        "describe_acls",
        "0-3",
        "2+",
        "1-3",
        ("broker", "controller"),
        False,
    ),
    ApiKey.CREATE_ACLS: (
        "CreateAcls",
        "create_acls",
        "0-3",
        "2+",
        "1-3",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DELETE_ACLS: (
        "DeleteAcls",
        "delete_acls",
        "0-3",
        "2+",
        "1-3",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        "DescribeConfigs",
        "describe_configs",
        "0-4",
        "4+",
        "1-4",
        ("broker", "controller"),
        False,
    ),
    ApiKey.ALTER_CONFIGS: (
        "AlterConfigs",
        "alter_configs",
        "0-2",
        "2+",
        "0-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        "AlterReplicaLogDirs",
        "alter_replica_log_dirs",
        "0-2",
        "2+",
        "1-2",
        ("broker",),
        False,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (
        "DescribeLogDirs",
        "describe_log_dirs",
        "0-4",
        "2+",
        "1-4",
        ("broker",),
        False,
    ),
    ApiKey.SASL_AUTHENTICATE: (
        "SaslAuthenticate",
        "sasl_authenticate",
        "0-2",
        "2+",
        "0-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.CREATE_PARTITIONS: (
        "CreatePartitions",
        "create_partitions",
        "0-3",
        "2+",
        "0-3",
        ("broker", "controller"),
        False,
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        "CreateDelegationToken",
        "create_delegation_token",
        "0-3",
        "2+",
        "1-3",
        ("broker", "controller"),
        False,
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (
        "RenewDelegationToken",
        "renew_delegation_token",
        "0-2",
        "2+",
        "1-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (
        "ExpireDelegationToken",
        "expire_delegation_token",
        "0-2",
        "2+",
        "1-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        "DescribeDelegationToken",
        "describe_delegation_token",
        "0-3",
        "2+",
        "1-3",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DELETE_GROUPS: ("DeleteGroups", "delete_groups", "0-2", "2+", "0-2", ("broker",), False),
    ApiKey.ELECT_LEADERS: (
        "ElectLeaders",
        "elect_leaders",
        "0-2",
        "2+",
        "0-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        "IncrementalAlterConfigs",
        "incremental_alter_configs",
        "0-1",
        "1+",
        "0-1",
        ("broker", "controller"),
        False,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        "AlterPartitionReassignments",
        "alter_partition_reassignments",
        "0-1",
        "0+",
        "0-1",
        ("broker", "controller"),
        False,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        "ListPartitionReassignments",
        "list_partition_reassignments",
        "0",
        "0+",
        "0",
        ("broker", "controller"),
        False,
    ),
    ApiKey.OFFSET_DELETE: ("OffsetDelete", "offset_delete", "0", "none", "0", ("broker",), False),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        "DescribeClientQuotas",
        "describe_client_quotas",
        "0-1",
        "1+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        "AlterClientQuotas",
        "alter_client_quotas",
        "0-1",
        "1+",
        "0-1",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        "DescribeUserScramCredentials",
        "describe_user_scram_credentials",
        "0",
        "0+",
        "0",
        ("broker", "controller"),
        False,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        "AlterUserScramCredentials",
        "alter_user_scram_credentials",
        "0",
        "0+",
        "0",
        ("broker", "controller"),
        False,
    ),
    ApiKey.VOTE: ("Vote", "vote", "0-2", "0+", "0-2", ("controller",), False),
    ApiKey.BEGIN_QUORUM_EPOCH: (
        "BeginQuorumEpoch",
        "begin_quorum_epoch",
        "0-1",
        "1+",
        "0-1",
        ("controller",),
        False,
    ),
    ApiKey.END_QUORUM_EPOCH: (
        "EndQuorumEpoch",
        "end_quorum_epoch",
        "0-1",
        "1+",
        "0-1",
        ("controller",),
        False,
    ),
    ApiKey.DESCRIBE_QUORUM: (
        "DescribeQuorum",
        "describe_quorum",
        "0-2",
        "0+",
        "0-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.ALTER_PARTITION: (
        "AlterPartition",
        "alter_partition",
        "0-3",
        "0+",
        "2-3",
        ("controller",),
        False,
    ),
    ApiKey.UPDATE_FEATURES: (
        "UpdateFeatures",
        "update_features",
        "0-2",
        "0+",
        "0-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.ENVELOPE: ("Envelope", "envelope", "0", "0+", "0", ("controller",), False),
    ApiKey.FETCH_SNAPSHOT: (
        "FetchSnapshot",
        "fetch_snapshot",
        "0-1",
        "0+",
        "0-1",
        ("controller",),
        False,
    ),
    ApiKey.DESCRIBE_CLUSTER: (
        "DescribeCluster",
        "describe_cluster",
        "0-2",
        "0+",
        "0-2",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        "DescribeProducers",
        "describe_producers",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.BROKER_REGISTRATION: (
        "BrokerRegistration",
        "broker_registration",
        "0-4",
        "0+",
        "0-4",
        ("controller",),
        False,
    ),
    ApiKey.BROKER_HEARTBEAT: (
        "BrokerHeartbeat",
        "broker_heartbeat",
        "0-1",
        "0+",
        "0-1",
        ("controller",),
        False,
    ),
    ApiKey.UNREGISTER_BROKER: (
        "UnregisterBroker",
        "unregister_broker",
        "0",
        "0+",
        "0",
        ("broker", "controller"),
        False,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        "DescribeTransactions",
        "describe_transactions",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.LIST_TRANSACTIONS: (
        "ListTransactions",
        "list_transactions",
        "0-2",
        "0+",
        "0-2",
        ("broker",),
        False,
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: (
        "AllocateProducerIds",
        "allocate_producer_ids",
        "0",
        "0+",
        "0",
        ("controller",),
        False,
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        "ConsumerGroupHeartbeat",
        "consumer_group_heartbeat",
        "0-1",
        "0+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        "ConsumerGroupDescribe",
        "consumer_group_describe",
        "0-1",
        "0+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.CONTROLLER_REGISTRATION: (
        "ControllerRegistration",
        "controller_registration",
        "0",
        "0+",
        "0",
        ("controller",),
        False,
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (
        "GetTelemetrySubscriptions",
        "get_telemetry_subscriptions",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.PUSH_TELEMETRY: ("PushTelemetry", "push_telemetry", "0", "0+", "0", ("broker",), False),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (
        "AssignReplicasToDirs",
        "assign_replicas_to_dirs",
        "0",
        "0+",
        "0",
        ("controller",),
        False,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (
        "ListConfigResources",
        "list_config_resources",
        "0-1",
        "0+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        "DescribeTopicPartitions",
        "describe_topic_partitions",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        "ShareGroupHeartbeat",
        "share_group_heartbeat",
        "1",
        "1+",
        "1",
        ("broker",),
        False,
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: (
        "ShareGroupDescribe",
        "share_group_describe",
        "1",
        "1+",
        "1",
        ("broker",),
        False,
    ),
    ApiKey.SHARE_FETCH: ("ShareFetch", "share_fetch", "1-2", "1+", "1-2", ("broker",), False),
    ApiKey.SHARE_ACKNOWLEDGE: (
        "ShareAcknowledge",
        "share_acknowledge",
        "1-2",
        "1+",
        "1-2",
        ("broker",),
        False,
    ),
    ApiKey.ADD_RAFT_VOTER: (
        "AddRaftVoter",
        "add_raft_voter",
        "0-1",
        "0+",
        "0-1",
        ("controller", "broker"),
        False,
    ),
    ApiKey.REMOVE_RAFT_VOTER: (
        "RemoveRaftVoter",
        "remove_raft_voter",
        "0",
        "0+",
        "0",
        ("controller", "broker"),
        False,
    ),
    ApiKey.UPDATE_RAFT_VOTER: (
        "UpdateRaftVoter",
        "update_raft_voter",
        "0",
        "0+",
        "0",
        ("controller",),
        False,
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (
        "InitializeShareGroupState",
        "initialize_share_group_state",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.READ_SHARE_GROUP_STATE: (
        "ReadShareGroupState",
        "read_share_group_state",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: (
        "WriteShareGroupState",
        "write_share_group_state",
        "0-1",
        "0+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: (
        "DeleteShareGroupState",
        "delete_share_group_state",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (
        "ReadShareGroupStateSummary",
        "read_share_group_state_summary",
        "0-1",
        "0+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        "StreamsGroupHeartbeat",
        "streams_group_heartbeat",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: (
        "StreamsGroupDescribe",
        "streams_group_describe",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        "DescribeShareGroupOffsets",
        "describe_share_group_offsets",
        "0-1",
        "0+",
        "0-1",
        ("broker",),
        False,
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        "AlterShareGroupOffsets",
        "alter_share_group_offsets",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        "DeleteShareGroupOffsets",
        "delete_share_group_offsets",
        "0",
        "0+",
        "0",
        ("broker",),
        False,
    ),
}

#: Records of the cluster metadata log by their key: module, class.
CLUSTER_METADATA_RECORDS: dict[int, tuple[str, str]] = {
    0: ("records.cluster_metadata", "RegisterBrokerRecord"),
    1: ("records.cluster_metadata", "UnregisterBrokerRecord"),
    2: ("records.cluster_metadata", "TopicRecord"),
    3: ("records.cluster_metadata", "PartitionRecord"),
    4: ("records.cluster_metadata", "ConfigRecord"),
    5: ("records.cluster_metadata", "PartitionChangeRecord"),
    7: ("records.cluster_metadata", "FenceBrokerRecord"),
    8: ("records.cluster_metadata", "UnfenceBrokerRecord"),
    9: ("records.cluster_metadata", "RemoveTopicRecord"),
    10: ("records.cluster_metadata", "DelegationTokenRecord"),
    11: ("records.cluster_metadata", "UserScramCredentialRecord"),
    12: ("records.cluster_metadata", "FeatureLevelRecord"),
    14: ("records.cluster_metadata", "ClientQuotaRecord"),
    15: ("records.cluster_metadata", "ProducerIdsRecord"),
    17: ("records.cluster_metadata", "BrokerRegistrationChangeRecord"),
    18: ("records.cluster_metadata", "AccessControlEntryRecord"),
    19: ("records.cluster_metadata", "RemoveAccessControlEntryRecord"),
    20: ("records.cluster_metadata", "NoOpRecord"),
    21: ("records.cluster_metadata", "ZkMigrationStateRecord"),
    22: ("records.cluster_metadata", "RemoveUserScramCredentialRecord"),
    23: ("records.cluster_metadata", "BeginTransactionRecord"),
    24: ("records.cluster_metadata", "EndTransactionRecord"),
    25: ("records.cluster_metadata", "AbortTransactionRecord"),
    26: ("records.cluster_metadata", "RemoveDelegationTokenRecord"),
    27: ("records.cluster_metadata", "RegisterControllerRecord"),
    28: ("records.cluster_metadata", "ClearElrRecord"),
}

#: Records of the remote log metadata topic by their key: module, class.
REMOTE_LOG_METADATA_RECORDS: dict[int, tuple[str, str]] = {
    0: ("records.storage", "RemoteLogSegmentMetadataRecord"),
    1: ("records.storage", "RemoteLogSegmentMetadataUpdateRecord"),
    2: ("records.storage", "RemotePartitionDeleteMetadataRecord"),
    3: ("records.storage", "RemoteLogSegmentMetadataSnapshotRecord"),
}

#: Records of coordinators by their type: module, class of the key, class of the value.
COORDINATOR_RECORDS: dict[str, dict[int, tuple[str, str, str]]] = {
    "group": {
        0: ("records.classic_group", "LegacyOffsetCommitKey", "LegacyOffsetCommitValue"),
        1: ("records.classic_group", "OffsetCommitKey", "OffsetCommitValue"),
        2: ("records.classic_group", "GroupMetadataKey", "GroupMetadataValue"),
        3: ("records.consumer_group", "ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue"),
        4: (
            "records.consumer_group",
            "ConsumerGroupPartitionMetadataKey",
            "ConsumerGroupPartitionMetadataValue",
        ),
        5: (
            "records.consumer_group",
            "ConsumerGroupMemberMetadataKey",
            "ConsumerGroupMemberMetadataValue",
        ),
        6: (
            "records.consumer_group",
            "ConsumerGroupTargetAssignmentMetadataKey",
            "ConsumerGroupTargetAssignmentMetadataValue",
        ),
        7: (
            "records.consumer_group",
            "ConsumerGroupTargetAssignmentMemberKey",
            "ConsumerGroupTargetAssignmentMemberValue",
        ),
        8: (
            "records.consumer_group",
            "ConsumerGroupCurrentMemberAssignmentKey",
            "ConsumerGroupCurrentMemberAssignmentValue",
        ),
        10: ("records.share_group", "ShareGroupMemberMetadataKey", "ShareGroupMemberMetadataValue"),
        11: ("records.share_group", "ShareGroupMetadataKey", "ShareGroupMetadataValue"),
        12: (
            "records.share_group",
            "ShareGroupTargetAssignmentMetadataKey",
            "ShareGroupTargetAssignmentMetadataValue",
        ),
        13: (
            "records.share_group",
            "ShareGroupTargetAssignmentMemberKey",
            "ShareGroupTargetAssignmentMemberValue",
        ),
        14: (
            "records.share_group",
            "ShareGroupCurrentMemberAssignmentKey",
            "ShareGroupCurrentMemberAssignmentValue",
        ),
        15: (
            "records.share_group",
            "ShareGroupStatePartitionMetadataKey",
            "ShareGroupStatePartitionMetadataValue",
        ),
        16: (
            "records.consumer_group",
            "ConsumerGroupRegularExpressionKey",
            "ConsumerGroupRegularExpressionValue",
        ),
        17: ("records.streams_group", "StreamsGroupMetadataKey", "StreamsGroupMetadataValue"),
        19: (
            "records.streams_group",
            "StreamsGroupMemberMetadataKey",
            "StreamsGroupMemberMetadataValue",
        ),
        20: (
            "records.streams_group",
            "StreamsGroupTargetAssignmentMetadataKey",
            "StreamsGroupTargetAssignmentMetadataValue",
        ),
        21: (
            "records.streams_group",
            "StreamsGroupTargetAssignmentMemberKey",
            "StreamsGroupTargetAssignmentMemberValue",
        ),
        22: (
            "records.streams_group",
            "StreamsGroupCurrentMemberAssignmentKey",
            "StreamsGroupCurrentMemberAssignmentValue",
        ),
        23: ("records.streams_group", "StreamsGroupTopologyKey", "StreamsGroupTopologyValue"),
    },
    "share": {
        0: ("records.share_state", "ShareSnapshotKey", "ShareSnapshotValue"),
        1: ("records.share_state", "ShareUpdateKey", "ShareUpdateValue"),
    },
    "transaction": {
        0: ("records.transaction", "TransactionLogKey", "TransactionLogValue"),
    },
}

#: The modules of all other messages.
OTHERS: dict[str, str] = {
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "DefaultPrincipalData": "principal",
    "EndTxnMarker": "records.control",
    "KRaftVersionRecord": "records.control",
    "LeaderChangeMessage": "records.control",
    "ProducerSnapshot": "records.storage",
    "QuorumStateData": "records.raft",
    "RequestHeader": "header",
    "ResponseHeader": "header",
    "SnapshotFooterRecord": "records.control",
    "SnapshotHeaderRecord": "records.control",
    "VotersRecord": "records.control",
}
