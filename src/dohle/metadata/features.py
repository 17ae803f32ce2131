"""Features: the levels that the cluster has agreed on, and how they are raised and lowered.

Three lists differ. What a new cluster finalizes is in :mod:`dohle.metadata.bootstrap`;
UpdateFeatures may set, and ApiVersions advertises, what is implemented here; and a log written by
Kafka may have finalized more, which is kept and does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.image import ClusterImage
from dohle.metadata.metadata_version import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    LATEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    changes_records,
)
from dohle.protocol.messages.broker_registration import Feature
from dohle.protocol.messages.records.cluster_metadata import FeatureLevelRecord
from dohle.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from dohle.protocol.schema import VersionRange

#: What is implemented here.
SUPPORTED_FEATURES: Mapping[str, VersionRange] = {
    METADATA_VERSION: VersionRange(LOWEST_LEVEL, LATEST_LEVEL),
    KRAFT_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
}
#: What a log may have finalized besides: the levels of Kafka 4.2.
TOLERATED_FEATURES: Mapping[str, VersionRange] = {
    **SUPPORTED_FEATURES,
    ELR_VERSION: VersionRange(0, 1),
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
}
_UNKNOWN_FEATURE = VersionRange(0, 0)


class UpgradeType(IntEnum):
    """How UpdateFeatures may change a level."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def unsupported_features(image: ClusterImage) -> list[str]:
    """Return the finalized features that keep this node out of the cluster, with the reasons."""
    return [
        f"{name} is finalized at level {level}, but this node supports only "
        f"{TOLERATED_FEATURES.get(name, _UNKNOWN_FEATURE)}"
        for name, level in sorted(image.features.items())
        if not TOLERATED_FEATURES.get(name, _UNKNOWN_FEATURE).covers(level)
    ]


def registration_features(image: ClusterImage) -> tuple[Feature, ...]:
    """Return the features with which a broker of this release registers in such a cluster."""
    tolerated = {name: TOLERATED_FEATURES.get(name, _UNKNOWN_FEATURE) for name in image.features}
    return tuple(
        Feature(
            name=name,
            min_supported_version=versions.lowest,
            max_supported_version=versions.highest,
        )
        for name, versions in sorted({**tolerated, **SUPPORTED_FEATURES}.items())
    )


def update_features(
    image: ClusterImage,
    request: UpdateFeaturesRequest,
    context: ControllerContext,
    *,
    version: int,
) -> Decision[UpdateFeaturesResponse]:
    """Change all the requested levels, or none."""
    records: list[VersionedRecord] = []
    # As in Kafka, the last one wins if a feature is named twice.
    updates = {update.feature: update for update in request.feature_updates}
    try:
        for update in updates.values():
            records += _update(image, update, context, version)
    except KafkaError as error:
        message = f"Nothing was updated, since one feature had an error: {error.args[0]}"
        return Decision((), UpdateFeaturesResponse(error_code=error.code, error_message=message))
    results = tuple(UpdatableFeatureResult(feature=name, error_message=None) for name in updates)
    reply = UpdateFeaturesResponse(error_message=None, results=results if version <= 1 else ())
    return Decision(() if request.validate_only else tuple(records), reply)


def _update(
    image: ClusterImage, update: FeatureUpdateKey, context: ControllerContext, version: int
) -> list[VersionedRecord]:
    name, level = update.feature, update.max_version_level
    upgrade_type = update.upgrade_type
    if version == 0 and update.allow_downgrade:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE
    current = context.kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    if upgrade_type not in (
        UpgradeType.UPGRADE,
        UpgradeType.SAFE_DOWNGRADE,
        UpgradeType.UNSAFE_DOWNGRADE,
    ):
        raise _invalid(name, level, f"{upgrade_type} is not an upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    _check_supported(image, name, level, context)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(
            name, level, "A downgrade needs the upgrade type of a safe or an unsafe downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == KRAFT_VERSION:
        if level != current:
            raise _invalid(name, level, "It can only be chosen when the storage is formatted.")
        return []
    if name == METADATA_VERSION and level < current and changes_records(level, current):
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}: it might delete "
            "metadata.",
        )
    return [VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)]


def _check_supported(
    image: ClusterImage, name: str, level: int, context: ControllerContext
) -> None:
    # A feature in the log may be lowered even if it may not be raised here.
    local = SUPPORTED_FEATURES.get(name, VersionRange(0, image.features.get(name, 0)))
    supporters = [(f"Local controller {context.node_id}", local)]
    if name != KRAFT_VERSION:
        supporters += [
            (f"Broker {broker.id}", broker.features.get(name, _UNKNOWN_FEATURE))
            for broker in image.brokers.values()
        ]
    for who, versions in supporters:
        if not versions.covers(level):
            if versions.highest == 0:
                raise _invalid(name, level, f"{who} does not support this feature.")
            raise _invalid(name, level, f"{who} only supports versions {versions}")


def _invalid(name: str, level: int, message: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {name}. {message}",
    )
