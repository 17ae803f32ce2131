"""What a controller writes when it takes over the log.

A new cluster begins with its features, as a metadata transaction named "Bootstrap records" where
the level allows transactions. A transaction that an earlier controller left open is aborted; if
it was the bootstrap, it is begun again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import ClusterImage
from dohle.metadata.metadata_version import LATEST_LEVEL, METADATA_VERSION, supports_transactions
from dohle.protocol.messages.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

#: What a new cluster finalizes: only what works here.
BOOTSTRAP_FEATURES: Mapping[str, int] = {METADATA_VERSION: LATEST_LEVEL}

_TRANSACTION_NAME = "Bootstrap records"
_ABORT_REASON = "Controller failover"


def default_bootstrap_records(
    metadata_version: int = BOOTSTRAP_FEATURES[METADATA_VERSION],
) -> tuple[VersionedRecord, ...]:
    """Return the records of a bootstrap.checkpoint, if nothing else is asked for."""
    features = {**BOOTSTRAP_FEATURES, METADATA_VERSION: metadata_version}
    return tuple(
        VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in features.items()
    )


def activation_records(
    image: ClusterImage, bootstrap: Sequence[VersionedRecord] | None = None
) -> tuple[VersionedRecord, ...]:
    """Return what to write before anything else; nothing if the log is in order."""
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
    return (*abort, begin, *records, VersionedRecord(EndTransactionRecord(), 0))


def _metadata_version_of(records: Sequence[VersionedRecord]) -> int:
    for each in records:
        if isinstance(each.record, FeatureLevelRecord) and each.record.name == METADATA_VERSION:
            return each.record.feature_level
    raise ValueError("the bootstrap records do not say which metadata.version the cluster has")
