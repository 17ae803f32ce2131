"""The life cycle of a broker: registered, unfenced, shutting down, fenced, unregistered.

A broker is fenced from its registration until it has read the log up to there. Its epoch is the
offset at which its registration began. Each step also writes, in the same batch, the new leaders of
the affected partitions: a broker that goes leaves its ISRs first, and one that comes is unfenced
first.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.steps import PlainSteps
from dohle.core.uuid import is_reserved, uuid_to_text
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import (
    RECORDS_PER_REQUEST_MAX,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.draft import ENTER_CONTROLLED_SHUTDOWN, FENCE, UNFENCE
from dohle.metadata.elections import Availability, leader_updates, leads_any
from dohle.metadata.image import BrokerRegistration, ClusterImage, Endpoint
from dohle.metadata.metadata_version import (
    KRAFT_VERSION,
    METADATA_VERSION,
    supports_directories,
)
from dohle.metadata.replay import apply
from dohle.metadata.snapshot import registration_record
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from dohle.protocol.messages.records.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)
from dohle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from dohle.protocol.schema import VersionRange

_OFFSET_MAX = 2**63 - 1

Records = tuple[VersionedRecord, ...]


class BrokerControlState(Enum):
    """The state that the controller tells a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def register_broker(
    image: ClusterImage,
    request: BrokerRegistrationRequest,
    context: ControllerContext,
    *,
    next_offset: int,
    session_alive: bool = False,
    kraft_version: int = 0,
) -> PlainSteps[Decision[BrokerRegistrationResponse]]:
    """Register a broker, a restart of it, or new addresses of the same one.

    ``next_offset`` is that of the next record to be written, and ``session_alive`` says whether the
    currently registered broker of this id has sent a heartbeat recently. ``kraft_version`` is the
    level of the quorum.
    """
    level = _level(image)
    existing = image.broker(request.broker_id)
    is_same_life = existing is not None and existing.incarnation_id == request.incarnation_id
    try:
        if request.cluster_id != context.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {context.cluster_id}, but got {request.cluster_id}.",
            )
        if existing is not None and session_alive and not is_same_life:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker {request.broker_id} is alive. If it was just restarted, try "
                "again once the session of its previous incarnation has expired.",
            )
        _check_directories(image, request, level)
        _check_features(image, request, kraft_version)
    except KafkaError as error:
        reply = BrokerRegistrationResponse(error_code=error.code)
        return Decision((), reply, reason=str(error))
    registration = _registration(request, next_offset, supports_directories(level))
    cleanup: Records = ()
    if is_same_life:
        assert existing is not None
        registration = replace(
            registration,
            epoch=existing.epoch,
            fenced=existing.fenced,
            in_controlled_shutdown=existing.in_controlled_shutdown,
        )
    else:
        is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
        cleanup = yield from _after_former_life(image, context, request.broker_id, is_clean)
    return Decision(
        (*cleanup, registration_record(registration, level)),
        BrokerRegistrationResponse(broker_epoch=registration.epoch),
        is_atomic=False,
    )


def unfence_broker(
    image: ClusterImage, broker_id: int, context: ControllerContext
) -> PlainSteps[Records]:
    """Unfence a broker; it now leads partitions that had no other candidate."""
    broker = _registered(image, broker_id)
    if not broker.fenced:
        return ()
    unfenced = _change(broker, 0, fenced=UNFENCE)
    if broker.in_controlled_shutdown:
        return (unfenced,)  # it cannot lead before it registers again
    elections = yield from leader_updates(image, context, Availability(joins=broker_id))
    return (unfenced, *elections)


def fence_broker(
    image: ClusterImage, broker_id: int, context: ControllerContext
) -> PlainSteps[Records]:
    """Fence a broker: others take over its partitions where possible."""
    broker = _registered(image, broker_id)
    if broker.fenced:
        return ()
    elections = yield from leader_updates(image, context, Availability(leaves=broker_id))
    return (*elections, _change(broker, 0, fenced=FENCE))


def begin_controlled_shutdown(
    image: ClusterImage, broker_id: int, context: ControllerContext
) -> PlainSteps[Records]:
    """Move leadership away from a broker that is about to stop, while it still serves."""
    broker = _registered(image, broker_id)
    elections = yield from leader_updates(image, context, Availability(leaves=broker_id))
    if broker.in_controlled_shutdown:
        return tuple(elections)
    change = _change(broker, 1, in_controlled_shutdown=ENTER_CONTROLLED_SHUTDOWN)
    return (change, *elections)


def unregister_broker(
    image: ClusterImage, request: UnregisterBrokerRequest, context: ControllerContext
) -> PlainSteps[Decision[UnregisterBrokerResponse]]:
    """Remove a broker that will not come back.

    Kafka also removes one that runs. It does not register again: heartbeats of an unknown epoch are
    refused until its process is started anew. Apache Kafka 4.2.1 as a single node then answers no
    client any more ("Timed out waiting for a node assignment"), and did not even stop by SIGTERM
    within a minute. So the broker in the controller's own process is not removed: nobody gains from
    it, and any client could freeze a single node.
    """
    own = image.broker(context.node_id)
    if request.broker_id == context.node_id and own is not None and not own.fenced:
        message = (
            f"Broker {request.broker_id} is running, in the same process as the controller: only a "
            "broker that will not come back can be unregistered."
        )
        reply = UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=message
        )
        return Decision((), reply)
    try:
        broker = _registered(image, request.broker_id)
    except KafkaError as error:
        message = str(error.args[0])
        return Decision((), UnregisterBrokerResponse(error_code=error.code, error_message=message))
    change = Availability(leaves=broker.id, is_unregistered=True)
    elections = yield from leader_updates(image, context, change)
    if len(elections) >= RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    # Kafka's message of a success is empty, not null.
    return Decision((*elections, VersionedRecord(record, 0)), UnregisterBrokerResponse())


def broker_heartbeat(
    image: ClusterImage,
    request: BrokerHeartbeatRequest,
    context: ControllerContext,
    *,
    controlled_shutdown_offset: int | None = None,
    lowest_active_offset: int = _OFFSET_MAX,
) -> PlainSteps[Decision[BrokerHeartbeatResponse]]:
    """Answer a broker's heartbeat, and grant what it asks for once that is possible.

    ``controlled_shutdown_offset`` is the offset of the last record when its controlled shutdown
    began, None if it did not, and ``lowest_active_offset`` how far all other active brokers have
    read: it may stop once they all know that it no longer leads.
    """
    try:
        broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision((), BrokerHeartbeatResponse(error_code=error.code), reason=str(error))
    records: list[VersionedRecord] = []
    if controlled_shutdown_offset is not None and not broker.fenced:
        moved = not (yield from leads_any(image, broker.id))
        done = moved and controlled_shutdown_offset <= lowest_active_offset
        state = BrokerControlState.SHUTDOWN_NOW if done else BrokerControlState.CONTROLLED_SHUTDOWN
    else:
        state = yield from _next_state(image, broker, request)
        if state is BrokerControlState.UNFENCED:
            records += yield from unfence_broker(image, broker.id, context)
        elif state is BrokerControlState.CONTROLLED_SHUTDOWN:
            records += yield from begin_controlled_shutdown(image, broker.id, context)
    if state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW):
        records += yield from fence_broker(image, broker.id, context)
    lost = tuple(each for each in broker.log_dirs if each in request.offline_log_dirs)
    if lost and supports_directories(_level(image)):
        # Behind the other changes: who is unfenced does not lead what it has just lost.
        after, _ = apply(image, [record for record, _ in records], image.offset, image.epoch)
        records += yield from _after_lost_directories(after, context, broker, lost)
    return Decision(
        tuple(records),
        BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.offset,
            is_fenced=state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=state is BrokerControlState.SHUTDOWN_NOW,
        ),
        is_atomic=False,
    )


def check_broker_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """Return the registration of this epoch; otherwise STALE_BROKER_EPOCH."""
    broker = image.broker(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected the broker epoch {broker.epoch}, but got {epoch}.",
        )
    return broker


def _next_state(
    image: ClusterImage, broker: BrokerRegistration, request: BrokerHeartbeatRequest
) -> PlainSteps[BrokerControlState]:
    if broker.fenced:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= broker.offset
        return (
            BrokerControlState.UNFENCED
            if caught_up and not request.want_fence
            else BrokerControlState.FENCED
        )
    if request.want_shut_down:
        leads = not request.want_fence and (yield from leads_any(image, broker.id))
        return BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
    return BrokerControlState.FENCED if request.want_fence else BrokerControlState.UNFENCED


def _level(image: ClusterImage) -> int:
    if image.metadata_version is None:
        raise ValueError("the cluster has not been bootstrapped: see activation_records")
    return image.metadata_version


def _registered(image: ClusterImage, broker_id: int) -> BrokerRegistration:
    broker = image.broker(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not registered."
        )
    return broker


def _change(
    broker: BrokerRegistration,
    version: int,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: tuple[Uuid, ...] = (),
) -> VersionedRecord:
    return VersionedRecord(
        BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            log_dirs=log_dirs,
        ),
        version,
    )


def _after_former_life(
    image: ClusterImage, context: ControllerContext, broker_id: BrokerId, is_clean: bool
) -> PlainSteps[Records]:
    if image.is_elr_enabled and not is_clean:
        change = Availability(crashed=broker_id)
    else:
        change = Availability(leaves=broker_id)
    return tuple((yield from leader_updates(image, context, change)))


def _after_lost_directories(
    image: ClusterImage,
    context: ControllerContext,
    broker: BrokerRegistration,
    lost: tuple[Uuid, ...],
) -> PlainSteps[Records]:
    change = Availability(leaves=broker.id, lost_directories=lost)
    left = tuple(directory for directory in broker.log_dirs if directory not in lost)
    elections = yield from leader_updates(image, context, change)
    return (*elections, _change(broker, 2, log_dirs=left))


def _registration(
    request: BrokerRegistrationRequest, epoch: int, has_directories: bool
) -> BrokerRegistration:
    return BrokerRegistration(
        id=request.broker_id,
        epoch=epoch,
        incarnation_id=request.incarnation_id,
        endpoints={
            each.name: Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in request.listeners
        },
        rack=request.rack,
        features={
            each.name: VersionRange(each.min_supported_version, each.max_supported_version)
            for each in request.features
        },
        log_dirs=request.log_dirs if has_directories else (),
    )


def _check_directories(image: ClusterImage, request: BrokerRegistrationRequest, level: int) -> None:
    if request.is_migrating_zk_broker:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers of a ZooKeeper cluster cannot register."
        )
    if not supports_directories(level):
        return
    if not request.log_dirs:
        raise _invalid_registration("No log directories are given.")
    if any(is_reserved(directory) for directory in request.log_dirs):
        raise _invalid_registration("A log directory has a reserved id.")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise _invalid_registration("A log directory is given twice.")
    for broker in image.brokers.values():
        if broker.id == request.broker_id:
            continue
        for directory in request.log_dirs:
            if directory in broker.log_dirs:
                text = uuid_to_text(directory)
                raise _invalid_registration(
                    f"Broker {broker.id} is already registered with directory {text}."
                )


def _check_features(
    image: ClusterImage, request: BrokerRegistrationRequest, kraft_version: int
) -> None:
    finalized = {**image.features, KRAFT_VERSION: kraft_version}
    for each in request.features:
        versions = VersionRange(each.min_supported_version, each.max_supported_version)
        level = finalized.pop(each.name, 0)
        if not versions.covers(level):
            raise _unsupported(each.name, level, versions)
    if METADATA_VERSION in finalized:
        raise _invalid_registration(f"The features given do not contain '{METADATA_VERSION}'.")
    for name, level in sorted(finalized.items()):
        if level != 0:
            raise _unsupported(name, level, VersionRange(0, 0))


def _unsupported(name: str, level: int, versions: VersionRange) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"The broker does not support the finalized version {level} of {name}. It wants a version "
        f"between {versions.lowest} and {versions.highest}, inclusive.",
    )


def _invalid_registration(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)
