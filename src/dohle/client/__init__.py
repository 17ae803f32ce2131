"""The client: producer, consumer and admin, for asyncio; :mod:`dohle.client.sync` for the rest.

A producer, consumer or admin is told where the brokers are, or given a :class:`Cluster` whose
connections it shares with others. Everything that a program needs is found here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dohle.client.admin.admin import Admin
    from dohle.client.admin.cluster_values import (
        BrokerDescription,
        ClusterDescription,
        ElectionType,
        Features,
        PartitionReassignment,
        PartitionReplica,
        QuorumDescription,
        QuorumReplica,
        UpgradeType,
        VoterKey,
    )
    from dohle.client.admin.config_values import (
        AlterOp,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ResourceType,
    )
    from dohle.client.admin.group_values import (
        GroupDescription,
        GroupListing,
        GroupMemberDescription,
        GroupType,
        ProducerDescription,
        TransactionDescription,
        TransactionListing,
    )
    from dohle.client.admin.log_dir_values import LogDirDescription
    from dohle.client.admin.results import Results
    from dohle.client.admin.topic_values import CreatedTopic, NewTopic
    from dohle.client.cluster import Cluster
    from dohle.client.config import (
        ClientConfig,
        ConsumerConfig,
        GroupProtocol,
        IsolationLevel,
        OffsetReset,
        ProducerConfig,
    )
    from dohle.client.consumer.columns import ColumnBatch
    from dohle.client.consumer.consumer import Consumer
    from dohle.client.consumer.fetched import ConsumedRecord
    from dohle.client.consumer.offsets import OffsetInfo
    from dohle.client.consumer.starts import (
        At,
        Beginning,
        End,
        LocalBeginning,
        MaxTimestamp,
        Since,
        Start,
        Tail,
    )
    from dohle.client.errors import AuthenticationFailed, ClientClosed, ConnectionClosed, TimedOut
    from dohle.client.group.membership import GroupMetadata
    from dohle.client.group.offsets import OffsetAndMetadata
    from dohle.client.group.rebalance_listener import RebalanceListener
    from dohle.client.interceptors import (
        ConsumerInterceptor,
        ProducerInterceptor,
        ProducerRecord,
    )
    from dohle.client.metadata import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
    from dohle.client.producer.batch import RecordMetadata
    from dohle.client.producer.producer import Producer
    from dohle.client.serializers import SerializationFailed
    from dohle.client.transactions.ends import PreparedTransaction, end_transaction
    from dohle.core.errors import ErrorCode, KafkaError
    from dohle.core.ids import TopicPartition
    from dohle.records.compression.codecs import Codec
    from dohle.records.record import Header, Record
    from dohle.security.client import ClientSecurity

__all__ = [
    "Admin",
    "AlterOp",
    "At",
    "AuthenticationFailed",
    "Beginning",
    "BrokerDescription",
    "BrokerInfo",
    "ClientClosed",
    "ClientConfig",
    "ClientSecurity",
    "Cluster",
    "ClusterDescription",
    "ClusterMetadata",
    "Codec",
    "ColumnBatch",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConnectionClosed",
    "ConsumedRecord",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "CreatedTopic",
    "ElectionType",
    "End",
    "ErrorCode",
    "Features",
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "GroupMetadata",
    "GroupProtocol",
    "GroupType",
    "Header",
    "IsolationLevel",
    "KafkaError",
    "LocalBeginning",
    "LogDirDescription",
    "MaxTimestamp",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetInfo",
    "OffsetReset",
    "PartitionInfo",
    "PartitionReassignment",
    "PartitionReplica",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerDescription",
    "ProducerInterceptor",
    "ProducerRecord",
    "QuorumDescription",
    "QuorumReplica",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "ResourceType",
    "Results",
    "SerializationFailed",
    "Since",
    "Start",
    "Tail",
    "TimedOut",
    "TopicInfo",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
    "VoterKey",
    "end_transaction",
    "run",
]

#: Where names come from: a part of the client is loaded when it is first asked for. A server, and a
#: command that only lists topics, need few of them.
_HOMES = {
    "admin.admin": ("Admin",),
    "admin.group_values": (
        "GroupDescription",
        "GroupListing",
        "GroupMemberDescription",
        "GroupType",
        "ProducerDescription",
        "TransactionDescription",
        "TransactionListing",
    ),
    "admin.results": ("Results",),
    "admin.cluster_values": (
        "BrokerDescription",
        "ClusterDescription",
        "ElectionType",
        "Features",
        "PartitionReassignment",
        "PartitionReplica",
        "QuorumDescription",
        "QuorumReplica",
        "UpgradeType",
        "VoterKey",
    ),
    "admin.config_values": (
        "AlterOp",
        "ConfigChange",
        "ConfigEntry",
        "ConfigResource",
        "ConfigSource",
        "ResourceType",
    ),
    "admin.log_dir_values": ("LogDirDescription",),
    "admin.topic_values": (
        "CreatedTopic",
        "NewTopic",
    ),
    "cluster": ("Cluster",),
    "config": (
        "ClientConfig",
        "ClientSecurity",
        "ConsumerConfig",
        "GroupProtocol",
        "IsolationLevel",
        "OffsetReset",
        "ProducerConfig",
    ),
    "consumer.columns": ("ColumnBatch",),
    "consumer.consumer": ("Consumer",),
    "consumer.fetched": ("ConsumedRecord",),
    "consumer.offsets": ("OffsetInfo",),
    "consumer.starts": (
        "At",
        "Beginning",
        "End",
        "LocalBeginning",
        "MaxTimestamp",
        "Since",
        "Start",
        "Tail",
    ),
    "errors": (
        "AuthenticationFailed",
        "ClientClosed",
        "ConnectionClosed",
        "TimedOut",
    ),
    "group.membership": ("GroupMetadata",),
    "group.offsets": ("OffsetAndMetadata",),
    "group.rebalance_listener": ("RebalanceListener",),
    "interceptors": (
        "ConsumerInterceptor",
        "ProducerInterceptor",
        "ProducerRecord",
    ),
    "metadata": (
        "BrokerInfo",
        "ClusterMetadata",
        "PartitionInfo",
        "TopicInfo",
    ),
    "producer.batch": ("RecordMetadata",),
    "producer.producer": ("Producer",),
    "serializers": ("SerializationFailed",),
    "transactions.ends": (
        "PreparedTransaction",
        "end_transaction",
    ),
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
#: What users need of other rooms.
_HOME_OF |= {
    "Codec": "dohle.records.compression.codecs",
    "ErrorCode": "dohle.core.errors",
    "Header": "dohle.records.record",
    "KafkaError": "dohle.core.errors",
    "Record": "dohle.records.record",
    "TopicPartition": "dohle.core.ids",
}


_Result = TypeVar("_Result")


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def run(call: Coroutine[Any, Any, _Result]) -> _Result:
    """Run one coroutine to its end in a new loop, and return its result."""
    return asyncio.run(call)
