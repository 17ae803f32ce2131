"""What each level of the feature ``metadata.version`` allows to be written to the metadata log.

Levels are plain numbers, because a log may contain one that this release does not know. Code that
writes a record asks here for the version that the finalized level allows, so that every node of
that level can read it.
"""

from __future__ import annotations

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

#: Kafka's names of the levels.
RELEASES = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
}
LOWEST_LEVEL = min(RELEASES)
LATEST_LEVEL = max(RELEASES)

#: The levels that added records or fields. A downgrade below one of them would lose some.
_CHANGED_RECORDS = frozenset({7, 8, 11, 13, 14, 15, 17, 23})

_ZK_MIGRATION = 8
_SCRAM = 11
_NO_EPOCH_BUMP_ON_ISR_SHRINK = 12
_TRANSACTIONS = 13
_DELEGATION_TOKENS = 14
_CONTROLLER_REGISTRATION = 15
_DIRECTORIES = 17
#: The first level at which eligible leader replicas may be in the log.
ELR_LEVEL = 23


def level_of_release(text: str) -> int | None:
    """Return the level of a name such as 4.2-IV0, or the last one of a release such as 4.2."""
    named = [level for level, name in RELEASES.items() if text in (name, name.partition("-")[0])]
    return max(named, default=None)


def changes_records(lower: int, higher: int) -> bool:
    """Tell whether a log of the higher level may hold what the lower one cannot."""
    return any(lower < level <= higher for level in _CHANGED_RECORDS)


def supports_scram(level: int) -> bool:
    """Tell whether SCRAM credentials may be in the log."""
    return level >= _SCRAM


def bumps_leader_epoch_on_isr_shrink(level: int) -> bool:
    """Tell whether brokers need a new leader epoch when the ISR shrinks (KAFKA-15021)."""
    return level < _NO_EPOCH_BUMP_ON_ISR_SHRINK


def supports_transactions(level: int) -> bool:
    """Tell whether metadata transactions (KIP-868) may be in the log."""
    return level >= _TRANSACTIONS


def supports_delegation_tokens(level: int) -> bool:
    """Tell whether delegation tokens may be in the log."""
    return level >= _DELEGATION_TOKENS


def supports_controller_registration(level: int) -> bool:
    """Tell whether controllers register (KIP-919)."""
    return level >= _CONTROLLER_REGISTRATION


def supports_directories(level: int) -> bool:
    """Tell whether partitions are assigned to log directories (KIP-858)."""
    return level >= _DIRECTORIES


def supports_elr(level: int) -> bool:
    """Tell whether eligible leader replicas (KIP-966) may be in the log."""
    return level >= ELR_LEVEL


def register_broker_record_version(level: int) -> int:
    """Return the version of RegisterBrokerRecord to write."""
    if supports_directories(level):
        return 3
    return 2 if level >= _ZK_MIGRATION else 1


def partition_record_version(level: int) -> int:
    """Return the version of PartitionRecord, and of PartitionChangeRecord, to write."""
    if supports_elr(level):
        return 2
    return 1 if supports_directories(level) else 0


def fetch_version(level: int | None) -> int:
    """Return the version in which a follower fetches (F11)."""
    return _version_at(_FETCH_VERSIONS, level)


def list_offsets_version(level: int | None) -> int:
    """Return the version in which a follower asks for offsets (F11)."""
    return _version_at(_LIST_OFFSETS_VERSIONS, level)


def _version_at(since: tuple[tuple[int, int], ...], level: int | None) -> int:
    known = 0 if level is None else level
    return next(version for first, version in since if known >= first)


#: By the first level that allows them.
_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
_LIST_OFFSETS_VERSIONS = ((29, 11), (25, 10), (21, 9), (9, 8), (0, 7))
