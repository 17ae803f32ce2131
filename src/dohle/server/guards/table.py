"""Which right each API needs, as a table. An API without an entry is not served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dohle.core.acls import AclOperation
from dohle.core.steps import PlainSteps
from dohle.protocol.apis import FORWARDABLE, ApiKey
from dohle.security.authorizer import Authorizer
from dohle.server.guards import administration, data, groups, metadata, offsets, transactions
from dohle.server.guards.administration import on_cluster, open_to_all
from dohle.server.guards.guard import Guard, api_name, guarded
from dohle.server.guards.shortcuts import guarded_learn
from dohle.server.net.handler import Handler, HandlerFunction, RequestContext
from dohle.server.rights import Rights

_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION

#: What everybody may ask, on brokers and controllers. Of delegation tokens nobody has any.
_OPEN = (
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)

_ON_CLUSTER: Mapping[ApiKey, AclOperation] = {
    ApiKey.LIST_CONFIG_RESOURCES: AclOperation.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: AclOperation.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: AclOperation.ALTER_CONFIGS,
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE,
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.UNREGISTER_BROKER: _ALTER,
    ApiKey.ADD_RAFT_VOTER: _ALTER,
    ApiKey.REMOVE_RAFT_VOTER: _ALTER,
    ApiKey.ENVELOPE: _CLUSTER_ACTION,
    ApiKey.VOTE: _CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: _CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: _CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: _CLUSTER_ACTION,
    ApiKey.ALTER_PARTITION: _CLUSTER_ACTION,
    ApiKey.BROKER_REGISTRATION: _CLUSTER_ACTION,
    ApiKey.BROKER_HEARTBEAT: _CLUSTER_ACTION,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_ACTION,
    ApiKey.CONTROLLER_REGISTRATION: _CLUSTER_ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _CLUSTER_ACTION,
    ApiKey.UPDATE_RAFT_VOTER: _CLUSTER_ACTION,
}

_COMMON: dict[ApiKey, Guard] = {
    **dict.fromkeys(_OPEN, open_to_all),
    **{key: on_cluster(operation) for key, operation in _ON_CLUSTER.items()},
    ApiKey.DESCRIBE_CONFIGS: administration.guard_describe_configs,
}

#: The listeners of controllers, and what clients ask of them through brokers.
CONTROLLER_GUARDS: dict[ApiKey, Guard] = {
    **_COMMON,
    ApiKey.FETCH: on_cluster(_CLUSTER_ACTION),
    ApiKey.DESCRIBE_CLUSTER: metadata.guard_describe_controllers,
    ApiKey.CREATE_TOPICS: administration.guard_create_topics,
    ApiKey.DELETE_TOPICS: administration.guard_delete_topics,
    ApiKey.CREATE_PARTITIONS: administration.guard_create_partitions,
    ApiKey.ALTER_CONFIGS: administration.guard_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: administration.guard_alter_configs_of_controller,
}

#: The listeners of brokers. What they pass on to the controller is guarded there, by what the
#: controller knows; other brokers may not have heard of the newest ACLs.
BROKER_GUARDS: dict[ApiKey, Guard] = {
    **_COMMON,
    **dict.fromkeys(FORWARDABLE, open_to_all),
    ApiKey.ALTER_CONFIGS: administration.guard_alter_own_legacy,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: administration.guard_alter_own,
    ApiKey.PRODUCE: data.guard_produce,
    # Its handler asks for the rights itself.
    ApiKey.FETCH: open_to_all,
    ApiKey.LIST_OFFSETS: data.guard_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: data.guard_offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: data.guard_delete_records,
    ApiKey.DESCRIBE_PRODUCERS: data.guard_describe_producers,
    ApiKey.DESCRIBE_CLUSTER: metadata.guard_describe_cluster,
    ApiKey.FIND_COORDINATOR: groups.guard_find_coordinator,
    ApiKey.JOIN_GROUP: groups.guard_join_group,
    ApiKey.SYNC_GROUP: groups.guard_sync_group,
    ApiKey.HEARTBEAT: groups.guard_heartbeat,
    ApiKey.LEAVE_GROUP: groups.guard_leave_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.guard_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.guard_consumer_group_describe,
    ApiKey.DESCRIBE_GROUPS: groups.guard_describe_groups,
    ApiKey.LIST_GROUPS: groups.guard_list_groups,
    ApiKey.DELETE_GROUPS: groups.guard_delete_groups,
    ApiKey.OFFSET_COMMIT: offsets.guard_offset_commit,
    ApiKey.OFFSET_FETCH: offsets.guard_offset_fetch,
    ApiKey.OFFSET_DELETE: offsets.guard_offset_delete,
    ApiKey.TXN_OFFSET_COMMIT: offsets.guard_txn_offset_commit,
    ApiKey.INIT_PRODUCER_ID: transactions.guard_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.guard_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.guard_add_offsets_to_txn,
    ApiKey.END_TXN: transactions.guard_end_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.guard_write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.guard_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.guard_list_transactions,
}

#: Handlers that take the place of others: what they answer depends on the rights throughout.
_Authorized = Callable[[Any, RequestContext, Any, Rights], PlainSteps[Any]]
_AUTHORIZED: Mapping[ApiKey, _Authorized] = {
    ApiKey.METADATA: metadata.authorized_metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.authorized_topic_partitions,
}


def guard_all(
    handlers: Mapping[ApiKey, Handler], guards: Mapping[ApiKey, Guard], authorizer: Authorizer
) -> dict[ApiKey, Handler]:
    """Put a guard before each handler."""
    found: dict[ApiKey, Handler] = {}
    for key, handler in handlers.items():
        if key in _AUTHORIZED:
            found[key] = replace(handler, function=_authorized(key, authorizer))
        elif guards[key] is open_to_all:
            found[key] = handler
        else:
            found[key] = guarded(key, handler, guards[key], authorizer)
        if handler.learn is not None:
            found[key] = replace(found[key], learn=guarded_learn(key, handler.learn, authorizer))
    return found


def _authorized(key: ApiKey, authorizer: Authorizer) -> HandlerFunction:
    function, name = _AUTHORIZED[key], api_name(key)

    def handle(server: Any, context: RequestContext, request: Any) -> PlainSteps[Any]:
        return function(server, context, request, Rights.of(authorizer, context.connection, name))

    return handle
