"""Which function serves which API. What is not here is not served, and not advertised."""

from __future__ import annotations

from dataclasses import replace

from dohle.protocol.apis import ApiKey, find_api
from dohle.security.authorizer import Authorizer
from dohle.server.channel import ClientGuard
from dohle.server.controller_apis import ControllerApis
from dohle.server.handlers import (
    acls,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
    controller,
    delete_records,
    find_coordinator,
    group_admin,
    log_dirs,
    offset_fetch,
    offsets,
    producers,
    replicas,
    sasl,
    security,
    topics,
    transaction_admin,
    transactions,
    write_txn_markers,
)
from dohle.server.handlers.api_versions import with_api_versions
from dohle.server.handlers.envelope import with_envelope
from dohle.server.handlers.fetch import fetch_kind, handle_fetch
from dohle.server.handlers.list_offsets import handle_list_offsets, handle_offset_for_leader_epoch
from dohle.server.handlers.metadata import handle_describe_topic_partitions, handle_metadata
from dohle.server.handlers.produce import handle_produce
from dohle.server.handlers.raft import TakeRequest, raft_handlers
from dohle.server.net.handler import Handler, serves
from dohle.server.shortcuts.commit import learn_commit
from dohle.server.shortcuts.fetch import learn_fetch
from dohle.server.shortcuts.produce import learn_produce


def all_handlers(
    *, two_phase_commit: bool = False, authorizer: Authorizer | None = None
) -> dict[ApiKey, Handler]:
    """Return a broker's handlers; ``two_phase_commit`` adds KIP-939's InitProducerId version.

    With an authorizer there is a guard before each of them.
    """
    handlers = dict(
        [
            serves(ApiKey.PRODUCE, handle_produce, lowest=0, joins=True, learn=learn_produce),
            serves(ApiKey.FETCH, handle_fetch, lowest=0, learn=learn_fetch, kind=fetch_kind),
            serves(ApiKey.LIST_OFFSETS, handle_list_offsets, lowest=0),
            serves(ApiKey.METADATA, handle_metadata),
            serves(ApiKey.OFFSET_FOR_LEADER_EPOCH, handle_offset_for_leader_epoch),
            serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle_describe_topic_partitions),
            *acls.HANDLERS,
            *classic_groups.HANDLERS,
            *cluster.HANDLERS,
            *configs.HANDLERS,
            *consumer_groups.HANDLERS,
            *find_coordinator.HANDLERS,
            *delete_records.HANDLERS,
            *group_admin.HANDLERS,
            *log_dirs.HANDLERS,
            *offset_fetch.HANDLERS,
            *offsets.HANDLERS,
            *producers.HANDLERS,
            *replicas.HANDLERS,
            *sasl.HANDLERS,
            *security.HANDLERS,
            *topics.HANDLERS,
            *transaction_admin.HANDLERS,
            *transactions.HANDLERS,
            *write_txn_markers.HANDLERS,
        ]
    )
    commit = ApiKey.OFFSET_COMMIT
    handlers[commit] = replace(handlers[commit], learn=learn_commit)
    if two_phase_commit:
        api = find_api(ApiKey.INIT_PRODUCER_ID)
        handlers[api.key] = replace(handlers[api.key], highest=api.versions.highest)
    if authorizer is not None:
        # Most nodes start without them.
        from dohle.server.guards.table import BROKER_GUARDS, guard_all

        handlers = guard_all(handlers, BROKER_GUARDS, authorizer)
    return with_api_versions(handlers)


#: What a controller serves to clients: what brokers would send on to it, and what tools ask of it.
_ON_CONTROLLERS = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
)


def controller_handlers(
    take_raft_request: TakeRequest, authorizer: Authorizer | None = None
) -> dict[ApiKey, Handler]:
    """Return what is served on the listeners of ``controller.listener.names``.

    What the nodes of the quorum ask is passed to ``take_raft_request``. With an authorizer there is
    a guard before each handler; before those within an envelope too, for the client behind it.
    """
    of_broker = all_handlers()
    handlers = {key: of_broker[key] for key in _ON_CONTROLLERS}
    handlers.update(raft_handlers(take_raft_request))
    handlers.update([cluster.DESCRIBE_CONTROLLERS, *controller.HANDLERS])
    if authorizer is None:
        return with_api_versions(with_envelope(handlers))
    from dohle.server.guards.table import CONTROLLER_GUARDS, guard_all

    guarded = guard_all(handlers, CONTROLLER_GUARDS, authorizer)
    envelope = {ApiKey.ENVELOPE: with_envelope(guarded)[ApiKey.ENVELOPE]}
    guarded.update(guard_all(envelope, CONTROLLER_GUARDS, authorizer))
    return with_api_versions(guarded)


def controller_guard(apis: ControllerApis) -> ClientGuard | None:
    """Return what guards the controller against clients of its own node, if anything does."""
    if apis.authorizer is None:
        return None
    from dohle.server.guards.guard import ControllerGuard
    from dohle.server.guards.table import CONTROLLER_GUARDS

    return ControllerGuard(apis, CONTROLLER_GUARDS, apis.authorizer)
