"""What a controller writes when it takes over the log.

A new cluster starts with its features, as a metadata transaction named "Bootstrap records" if the
level allows transactions. A transaction that an earlier controller left open is aborted; if it was
the bootstrap, it is started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dohle.metadata.context import MIN_INSYNC_REPLICAS, ControllerContext
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import CLUSTER_DEFAULT, ClusterImage
from dohle.metadata.metadata_version import (
    ELR_VERSION,
    GROUP_VERSION,
    LATEST_LEVEL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    supports_transactions,
)
from dohle.protocol.messages.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


class _Default(NamedTuple):
    """A feature's level in a new cluster whose metadata.version is not below ``since``."""

    level: int
    since: int


#: What a new cluster finalizes besides its metadata.version: only what is implemented.
_DEFAULTS = {
    ELR_VERSION: _Default(level=1, since=26),
    GROUP_VERSION: _Default(level=1, since=22),
    TRANSACTION_VERSION: _Default(level=2, since=24),
}

_NONE_CHOSEN: Mapping[str, int] = MappingProxyType({})
_TRANSACTION_NAME = "Bootstrap records"
_ABORT_REASON = "Controller failover"


def default_bootstrap_records(
    metadata_version: int = LATEST_LEVEL, chosen: Mapping[str, int] = _NONE_CHOSEN
) -> tuple[VersionedRecord, ...]:
    """Return the records of a bootstrap.checkpoint: the levels of a release, or those chosen.

    metadata.version comes first, and a level of 0 is not told.
    """
    levels = {
        name: default.level
        for name, default in _DEFAULTS.items()
        if metadata_version >= default.since
    }
    features = [(METADATA_VERSION, metadata_version), *sorted({**levels, **chosen}.items())]
    return tuple(
        VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in features
        if level > 0
    )


def activation_records(
    image: ClusterImage,
    context: ControllerContext,
    bootstrap: Sequence[VersionedRecord] | None = None,
) -> tuple[VersionedRecord, ...]:
    """Return what to write before anything else; nothing if the log is complete."""
    is_open = image.transaction is not None
    abort = (VersionedRecord(AbortTransactionRecord(reason=_ABORT_REASON), 0),) if is_open else ()
    if image.metadata_version is not None:
        return abort
    records = default_bootstrap_records() if bootstrap is None else tuple(bootstrap)
    level = _metadata_version_of(records)
    if not supports_transactions(level):
        if is_open:
            raise ValueError(
                f"the log has an open transaction, which metadata.version {level} cannot abort"
            )
        return records
    begin = VersionedRecord(BeginTransactionRecord(name=_TRANSACTION_NAME), 0)
    end = VersionedRecord(EndTransactionRecord(), 0)
    return (*abort, begin, *records, *_elr_records(records, context), end)


def _metadata_version_of(records: Sequence[VersionedRecord]) -> int:
    level = _level_of(records, METADATA_VERSION)
    if level is None:
        raise ValueError("the bootstrap records do not say which metadata.version the cluster has")
    return level


def _level_of(records: Sequence[VersionedRecord], feature: str) -> int | None:
    for each in records:
        if isinstance(each.record, FeatureLevelRecord) and each.record.name == feature:
            return each.record.feature_level
    return None


def _elr_records(
    records: Sequence[VersionedRecord], context: ControllerContext
) -> tuple[VersionedRecord, ...]:
    """Write the minimum of in-sync replicas if eligible leader replicas depend on it."""
    return (min_insync_replicas_record(context),) if _level_of(records, ELR_VERSION) else ()


def min_insync_replicas_record(context: ControllerContext) -> VersionedRecord:
    """Return the record of the minimum of in-sync replicas for the whole cluster.

    Every controller must find the same value in the log, whatever its own configuration says.
    """
    record = ConfigRecord(
        resource_type=CLUSTER_DEFAULT.type,
        resource_name=CLUSTER_DEFAULT.name,
        name=MIN_INSYNC_REPLICAS,
        value=str(context.config.get_int(MIN_INSYNC_REPLICAS)),
    )
    return VersionedRecord(record, 0)
