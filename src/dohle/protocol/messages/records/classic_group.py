"""Records of the group coordinator: offsets and classic groups.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import array, binary, int32, int64, string, uuid
from dohle.protocol.schema import CoordinatorKey, CoordinatorValue, Struct


class LegacyOffsetCommitKey(CoordinatorKey, record_type=0, versions="0", flexible="none"):
    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


class LegacyOffsetCommitValue(CoordinatorValue, record_type=0, versions="0", flexible="none"):
    offset: int = int64("0+")
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")


class OffsetCommitKey(CoordinatorKey, record_type=1, versions="0", flexible="none"):
    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


class OffsetCommitValue(CoordinatorValue, record_type=1, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(CoordinatorKey, record_type=2, versions="0", flexible="none"):
    group: str = string("0+")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable=True, default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = binary("0+")
    assignment: bytes = binary("0+")


class GroupMetadataValue(CoordinatorValue, record_type=2, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable=True)
    leader: str | None = string("0+", nullable=True)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: tuple[MemberMetadata, ...] = array(MemberMetadata, "0+")
