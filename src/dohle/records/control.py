"""Control records: what the log tells brokers and clients rather than applications.

The key of such a record holds its type; keys of a later version are read as version 0, and unknown
types are to be skipped. Transaction markers end a producer's transaction in one partition, and
their value is read and written here. The values of the quorum's control records are protocol
messages: their bytes are passed through.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from dohle.records.batch import NO_PARTITION_LEADER_EPOCH
from dohle.records.builder import BatchBuilder
from dohle.records.errors import InvalidRecord
from dohle.records.record import Record

_KEY = struct.Struct(">hh")  # version, type
_KEY_VERSION = 0
_TXN_MARKER = struct.Struct(">hi")  # version, coordinator epoch
_TXN_MARKER_VERSION = 0


class ControlRecordType(IntEnum):
    """The types by their number in a control record's key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class TxnMarker:
    """The end of a transaction in one partition."""

    type: ControlRecordType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        """Whether the transaction was committed."""
        return self.type is ControlRecordType.COMMIT


def encode_control_key(type: ControlRecordType) -> bytes:
    """Encode the key of a control record."""
    if type is ControlRecordType.UNKNOWN:
        raise ValueError("a control record of unknown type cannot be written")
    return _KEY.pack(_KEY_VERSION, type)


def decode_control_key(key: bytes | None) -> ControlRecordType:
    """Return a control record's type: UNKNOWN if a later release added it."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"the key of a control record has {_KEY.size} bytes, not {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"the key of a control record has version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def parse_control(record: Record) -> tuple[ControlRecordType, bytes | None]:
    """Return a control record's type and value."""
    return decode_control_key(record.key), record.value


def parse_txn_marker(record: Record) -> TxnMarker:
    """Decode a transaction marker; a control record of another type is refused."""
    type, value = parse_control(record)
    if type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise InvalidRecord(f"a {type.name} record is not a transaction marker")
    if value is None or len(value) < _TXN_MARKER.size:
        raise InvalidRecord(f"a transaction marker has {_TXN_MARKER.size} bytes, not {value!r}")
    version, coordinator_epoch = _TXN_MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"a transaction marker has version {version}")
    return TxnMarker(type, coordinator_epoch)


def build_txn_marker(
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Build the batch that commits or aborts a producer's transaction in a partition."""
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=leader_epoch,
    )
    type = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    value = _TXN_MARKER.pack(_TXN_MARKER_VERSION, coordinator_epoch)
    builder.append(timestamp, encode_control_key(type), value)
    return builder.build()


def build_control_batch(
    records: Iterable[tuple[ControlRecordType, bytes]],
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Build a batch of the quorum's control records, from their types and encoded values."""
    builder = BatchBuilder(
        base_offset=base_offset, is_control=True, partition_leader_epoch=leader_epoch
    )
    for type, value in records:
        builder.append(timestamp, encode_control_key(type), value)
    return builder.build()
