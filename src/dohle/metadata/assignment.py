"""New partitions: their replicas, assigned manually or by the placer, and their first state.

The active replicas form the first ISR, and the first of them leads. If a broker has a single log
directory, the replica is assigned to it; a broker with more chooses by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.steps import PlainSteps, mapped
from dohle.metadata.context import ControllerContext
from dohle.metadata.image import ClusterImage
from dohle.metadata.partition import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, PartitionImage
from dohle.metadata.placement import place_replicas

Replicas = tuple[BrokerId, ...]


def placed_partitions(
    image: ClusterImage, count: int, replication_factor: int, context: ControllerContext
) -> PlainSteps[list[PartitionImage]]:
    """Place new partitions across the cluster; INVALID_REPLICATION_FACTOR if that fails."""
    try:
        placed = place_replicas(image.brokers.values(), count, replication_factor, context.rng)
        return list((yield from mapped(partial(_new_partition, image), placed)))
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"Unable to replicate the partition {replication_factor} time(s): {error.args[0]}",
        ) from None


def assigned_partition(
    image: ClusterImage, index: int, replicas: Replicas, replication_factor: int | None
) -> PartitionImage:
    """Return a new partition with these replicas; INVALID_REPLICA_ASSIGNMENT if they are invalid.

    ``replication_factor`` is that of the partitions before it, None for the first.
    """
    check_assignment(image, replicas)
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent "
            f"with previous partitions, which have {replication_factor} replica(s)."
        )
    if not _active(image, replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are "
            "fenced or in controlled shutdown.",
        )
    return _new_partition(image, replicas)


def check_assignment(image: ClusterImage, replicas: Replicas) -> None:
    """Refuse replicas on unknown brokers, several on one, or none at all."""
    if not replicas:
        raise _refused("includes an empty replica list.")
    seen: set[BrokerId] = set()
    for broker_id in replicas:
        if image.broker(broker_id) is None:
            raise _refused(f"includes broker {broker_id}, but no such broker is registered.")
        if broker_id in seen:
            raise _refused(f"includes the broker {broker_id} more than once.")
        seen.add(broker_id)


def _new_partition(image: ClusterImage, replicas: Replicas) -> PartitionImage:
    isr = _active(image, replicas)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced or in controlled shutdown.",
        )
    return PartitionImage(
        replicas=replicas,
        directories=tuple(new_directory(image, broker_id) for broker_id in replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def _active(image: ClusterImage, replicas: Sequence[BrokerId]) -> Replicas:
    brokers = ((broker_id, image.broker(broker_id)) for broker_id in replicas)
    return tuple(broker_id for broker_id, broker in brokers if broker and broker.is_active)


def new_directory(image: ClusterImage, broker_id: BrokerId) -> Uuid:
    """Return the directory of a broker's new replica, as far as the controller can tell."""
    broker = image.broker(broker_id)
    if broker is None or len(broker.log_dirs) > 1:
        return DIRECTORY_UNASSIGNED
    return broker.log_dirs[0] if broker.log_dirs else DIRECTORY_MIGRATING


def _refused(message: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {message}"
    )
