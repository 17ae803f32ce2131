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


#: Key: name, versions, flexible versions, versions that the release itself serves, and the
#: listeners that do so, b for broker and c for controller. The module is the key in small letters.
APIS: dict[ApiKey, tuple[str, str, str, str, str]] = {
    ApiKey.PRODUCE: ("Produce", "0-13", "9+", "3-13", "b"),
    ApiKey.FETCH: ("Fetch", "0-18", "12+", "4-18", "bc"),
    ApiKey.LIST_OFFSETS: ("ListOffsets", "0-11", "6+", "1-11", "b"),
    ApiKey.METADATA: ("Metadata", "0-13", "9+", "0-13", "b"),
    ApiKey.LEADER_AND_ISR: ("LeaderAndIsr", "0-7", "4+", "none", ""),
    ApiKey.STOP_REPLICA: ("StopReplica", "0-4", "2+", "none", ""),
    ApiKey.UPDATE_METADATA: ("UpdateMetadata", "0-8", "6+", "none", ""),
    ApiKey.CONTROLLED_SHUTDOWN: ("ControlledShutdown", "0-3", "3+", "none", ""),
    ApiKey.OFFSET_COMMIT: ("OffsetCommit", "0-10", "8+", "2-10", "b"),
    ApiKey.OFFSET_FETCH: ("OffsetFetch", "0-10", "6+", "1-10", "b"),
    ApiKey.FIND_COORDINATOR: ("FindCoordinator", "0-6", "3+", "0-6", "b"),
    ApiKey.JOIN_GROUP: ("JoinGroup", "0-9", "6+", "0-9", "b"),
    ApiKey.HEARTBEAT: ("Heartbeat", "0-4", "4+", "0-4", "b"),
    ApiKey.LEAVE_GROUP: ("LeaveGroup", "0-5", "4+", "0-5", "b"),
    ApiKey.SYNC_GROUP: ("SyncGroup", "0-5", "4+", "0-5", "b"),
    ApiKey.DESCRIBE_GROUPS: ("DescribeGroups", "0-6", "5+", "0-6", "b"),
    ApiKey.LIST_GROUPS: ("ListGroups", "0-5", "3+", "0-5", "b"),
    ApiKey.SASL_HANDSHAKE: ("SaslHandshake", "0-1", "none", "0-1", "bc"),
    ApiKey.API_VERSIONS: ("ApiVersions", "0-4", "3+", "0-4", "bc"),
    ApiKey.CREATE_TOPICS: ("CreateTopics", "0-7", "5+", "2-7", "bc"),
    ApiKey.DELETE_TOPICS: ("DeleteTopics", "0-6", "4+", "1-6", "bc"),
    ApiKey.DELETE_RECORDS: ("DeleteRecords", "0-2", "2+", "0-2", "b"),
    ApiKey.INIT_PRODUCER_ID: ("InitProducerId", "0-6", "2+", "0-6", "b"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("OffsetForLeaderEpoch", "0-4", "4+", "2-4", "b"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("AddPartitionsToTxn", "0-5", "3+", "0-5", "b"),
    ApiKey.ADD_OFFSETS_TO_TXN: ("AddOffsetsToTxn", "0-4", "3+", "0-4", "b"),
    ApiKey.END_TXN: ("EndTxn", "0-5", "3+", "0-5", "b"),
    ApiKey.WRITE_TXN_MARKERS: ("WriteTxnMarkers", "0-2", "1+", "1-2", "b"),
    ApiKey.TXN_OFFSET_COMMIT: ("TxnOffsetCommit", "0-5", "3+", "0-5", "b"),
    ApiKey.DESCRIBE_ACLS: ("DescribeAcls", "0-3", "2+", "1-3", "bc"),
    ApiKey.CREATE_ACLS: ("CreateAcls", "0-3", "2+", "1-3", "bc"),
    ApiKey.DELETE_ACLS: ("DeleteAcls", "0-3", "2+", "1-3", "bc"),
    ApiKey.DESCRIBE_CONFIGS: ("DescribeConfigs", "0-4", "4+", "1-4", "bc"),
    ApiKey.ALTER_CONFIGS: ("AlterConfigs", "0-2", "2+", "0-2", "bc"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("AlterReplicaLogDirs", "0-2", "2+", "1-2", "b"),
    ApiKey.DESCRIBE_LOG_DIRS: ("DescribeLogDirs", "0-4", "2+", "1-4", "b"),
    ApiKey.SASL_AUTHENTICATE: ("SaslAuthenticate", "0-2", "2+", "0-2", "bc"),
    ApiKey.CREATE_PARTITIONS: ("CreatePartitions", "0-3", "2+", "0-3", "bc"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("CreateDelegationToken", "0-3", "2+", "1-3", "bc"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("RenewDelegationToken", "0-2", "2+", "1-2", "bc"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("ExpireDelegationToken", "0-2", "2+", "1-2", "bc"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("DescribeDelegationToken", "0-3", "2+", "1-3", "bc"),
    ApiKey.DELETE_GROUPS: ("DeleteGroups", "0-2", "2+", "0-2", "b"),
    ApiKey.ELECT_LEADERS: ("ElectLeaders", "0-2", "2+", "0-2", "bc"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("IncrementalAlterConfigs", "0-1", "1+", "0-1", "bc"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("AlterPartitionReassignments", "0-1", "0+", "0-1", "bc"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("ListPartitionReassignments", "0", "0+", "0", "bc"),
    ApiKey.OFFSET_DELETE: ("OffsetDelete", "0", "none", "0", "b"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("DescribeClientQuotas", "0-1", "1+", "0-1", "b"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("AlterClientQuotas", "0-1", "1+", "0-1", "bc"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("DescribeUserScramCredentials", "0", "0+", "0", "bc"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("AlterUserScramCredentials", "0", "0+", "0", "bc"),
    ApiKey.VOTE: ("Vote", "0-2", "0+", "0-2", "c"),
    ApiKey.BEGIN_QUORUM_EPOCH: ("BeginQuorumEpoch", "0-1", "1+", "0-1", "c"),
    ApiKey.END_QUORUM_EPOCH: ("EndQuorumEpoch", "0-1", "1+", "0-1", "c"),
    ApiKey.DESCRIBE_QUORUM: ("DescribeQuorum", "0-2", "0+", "0-2", "bc"),
    ApiKey.ALTER_PARTITION: ("AlterPartition", "0-3", "0+", "2-3", "c"),
    ApiKey.UPDATE_FEATURES: ("UpdateFeatures", "0-2", "0+", "0-2", "bc"),
    ApiKey.ENVELOPE: ("Envelope", "0", "0+", "0", "c"),
    ApiKey.FETCH_SNAPSHOT: ("FetchSnapshot", "0-1", "0+", "0-1", "c"),
    ApiKey.DESCRIBE_CLUSTER: ("DescribeCluster", "0-2", "0+", "0-2", "bc"),
    ApiKey.DESCRIBE_PRODUCERS: ("DescribeProducers", "0", "0+", "0", "b"),
    ApiKey.BROKER_REGISTRATION: ("BrokerRegistration", "0-4", "0+", "0-4", "c"),
    ApiKey.BROKER_HEARTBEAT: ("BrokerHeartbeat", "0-1", "0+", "0-1", "c"),
    ApiKey.UNREGISTER_BROKER: ("UnregisterBroker", "0", "0+", "0", "bc"),
    ApiKey.DESCRIBE_TRANSACTIONS: ("DescribeTransactions", "0", "0+", "0", "b"),
    ApiKey.LIST_TRANSACTIONS: ("ListTransactions", "0-2", "0+", "0-2", "b"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("AllocateProducerIds", "0", "0+", "0", "c"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("ConsumerGroupHeartbeat", "0-1", "0+", "0-1", "b"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("ConsumerGroupDescribe", "0-1", "0+", "0-1", "b"),
    ApiKey.CONTROLLER_REGISTRATION: ("ControllerRegistration", "0", "0+", "0", "c"),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ("GetTelemetrySubscriptions", "0", "0+", "0", "b"),
    ApiKey.PUSH_TELEMETRY: ("PushTelemetry", "0", "0+", "0", "b"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ("AssignReplicasToDirs", "0", "0+", "0", "c"),
    ApiKey.LIST_CONFIG_RESOURCES: ("ListConfigResources", "0-1", "0+", "0-1", "b"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("DescribeTopicPartitions", "0", "0+", "0", "b"),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("ShareGroupHeartbeat", "1", "1+", "1", "b"),
    ApiKey.SHARE_GROUP_DESCRIBE: ("ShareGroupDescribe", "1", "1+", "1", "b"),
    ApiKey.SHARE_FETCH: ("ShareFetch", "1-2", "1+", "1-2", "b"),
    ApiKey.SHARE_ACKNOWLEDGE: ("ShareAcknowledge", "1-2", "1+", "1-2", "b"),
    ApiKey.ADD_RAFT_VOTER: ("AddRaftVoter", "0-1", "0+", "0-1", "bc"),
    ApiKey.REMOVE_RAFT_VOTER: ("RemoveRaftVoter", "0", "0+", "0", "bc"),
    ApiKey.UPDATE_RAFT_VOTER: ("UpdateRaftVoter", "0", "0+", "0", "c"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ("InitializeShareGroupState", "0", "0+", "0", "b"),
    ApiKey.READ_SHARE_GROUP_STATE: ("ReadShareGroupState", "0", "0+", "0", "b"),
    ApiKey.WRITE_SHARE_GROUP_STATE: ("WriteShareGroupState", "0-1", "0+", "0-1", "b"),
    ApiKey.DELETE_SHARE_GROUP_STATE: ("DeleteShareGroupState", "0", "0+", "0", "b"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ("ReadShareGroupStateSummary", "0-1", "0+", "0-1", "b"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ("StreamsGroupHeartbeat", "0", "0+", "0", "b"),
    ApiKey.STREAMS_GROUP_DESCRIBE: ("StreamsGroupDescribe", "0", "0+", "0", "b"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("DescribeShareGroupOffsets", "0-1", "0+", "0-1", "b"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("AlterShareGroupOffsets", "0", "0+", "0", "b"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("DeleteShareGroupOffsets", "0", "0+", "0", "b"),
}

#: Those whose latest version the release does not promise to keep.
UNSTABLE_APIS: frozenset[ApiKey] = frozenset({ApiKey.INIT_PRODUCER_ID})

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
