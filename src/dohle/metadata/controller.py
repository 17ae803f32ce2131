"""The commands of the controller in one place.

Each takes the image and a request, and returns a :class:`~dohle.metadata.decision.Decision`, or
just records if there is no request. The driver appends the records as one batch, replays them, and
answers once they are committed; the next command sees the image after that replay.
"""

from __future__ import annotations

from dohle.metadata.acls import create_acls, delete_acls
from dohle.metadata.alter_partition import alter_partition
from dohle.metadata.bootstrap import activation_records, default_bootstrap_records
from dohle.metadata.brokers import (
    begin_controlled_shutdown,
    broker_heartbeat,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from dohle.metadata.client_quotas import alter_client_quotas
from dohle.metadata.configs import alter_configs, incremental_alter_configs
from dohle.metadata.context import ControllerContext
from dohle.metadata.controllers import register_controller
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.directories import assign_replicas_to_dirs
from dohle.metadata.features import (
    SUPPORTED_FEATURES,
    registration_features,
    unsupported_features,
    update_features,
)
from dohle.metadata.leader_elections import elect_leaders
from dohle.metadata.producer_ids import allocate_producer_ids
from dohle.metadata.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from dohle.metadata.scram import alter_user_scram_credentials
from dohle.metadata.topic_changes import create_partitions, delete_topics
from dohle.metadata.topics import create_topics

__all__ = [
    "SUPPORTED_FEATURES",
    "ControllerContext",
    "Decision",
    "VersionedRecord",
    "activation_records",
    "allocate_producer_ids",
    "alter_client_quotas",
    "alter_configs",
    "alter_partition",
    "alter_partition_reassignments",
    "alter_user_scram_credentials",
    "assign_replicas_to_dirs",
    "begin_controlled_shutdown",
    "broker_heartbeat",
    "create_acls",
    "create_partitions",
    "create_topics",
    "default_bootstrap_records",
    "delete_acls",
    "delete_topics",
    "elect_leaders",
    "fence_broker",
    "incremental_alter_configs",
    "list_partition_reassignments",
    "register_broker",
    "register_controller",
    "registration_features",
    "unfence_broker",
    "unregister_broker",
    "unsupported_features",
    "update_features",
]
