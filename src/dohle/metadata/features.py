"""Features: the levels that the cluster has agreed on, and how they are raised and lowered.

Three lists differ. What a new cluster finalizes is in :mod:`dohle.metadata.bootstrap`. ApiVersions
advertises what is implemented here. A log, written here or by Kafka, may have finalized more: all
that Kafka 4.2 knows. UpdateFeatures takes these too, since ``kafka-features upgrade
--release-version`` asks for all features of a release at once; they have no effect here.

``kraft.version`` is the quorum's own: its log has it in control records, and so a decision names it
apart from the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.bootstrap import min_insync_replicas_record
from dohle.metadata.context import MIN_INSYNC_REPLICAS, ControllerContext
from dohle.metadata.decision import Decision, KraftUpgrade, VersionedRecord
from dohle.metadata.image import ClusterImage, ResourceType
from dohle.metadata.metadata_version import (
    ELR_LEVEL,
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    LATEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    changes_records,
    supports_controller_registration,
    supports_elr,
)
from dohle.protocol.messages.broker_registration import Feature
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterControllerRecord,
)
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
    ELR_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
}
#: What a log may have finalized: the levels of Kafka 4.2.
TOLERATED_FEATURES: Mapping[str, VersionRange] = {
    **SUPPORTED_FEATURES,
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


def registration_features() -> tuple[Feature, ...]:
    """Return the features with which a broker of this release registers."""
    return tuple(
        Feature(
            name=name,
            min_supported_version=versions.lowest,
            max_supported_version=versions.highest,
        )
        for name, versions in sorted(TOLERATED_FEATURES.items())
    )


def update_features(
    image: ClusterImage,
    request: UpdateFeaturesRequest,
    context: ControllerContext,
    *,
    version: int,
    kraft_version: int = 0,
) -> Decision[UpdateFeaturesResponse]:
    """Change all the requested levels, or none. ``kraft_version`` is the level of the quorum."""
    records: list[VersionedRecord] = []
    levels = {**image.features, KRAFT_VERSION: kraft_version}
    # As in Kafka, the last one wins if a feature is named twice.
    updates = {update.feature: update for update in request.feature_updates}
    proposed = {**levels, **{name: update.max_version_level for name, update in updates.items()}}
    try:
        for update in updates.values():
            _check(image, update, context, version, levels.get(update.feature, 0))
            _check_dependencies(update, proposed)
            if update.feature != KRAFT_VERSION:
                records += _update(image, update, context)
    except KafkaError as error:
        message = one_feature_failed(error.args[0])
        return Decision((), UpdateFeaturesResponse(error_code=error.code, error_message=message))
    results = tuple(UpdatableFeatureResult(feature=name, error_message=None) for name in updates)
    reply = UpdateFeaturesResponse(error_message=None, results=results if version <= 1 else ())
    quorum = updates.get(KRAFT_VERSION)
    upgrade = None
    if quorum is not None and quorum.max_version_level > kraft_version:
        upgrade = KraftUpgrade(quorum.max_version_level, request.validate_only)
        # The quorum's own records tell nobody that they are committed; this one does (R112).
        records.append(VersionedRecord(NoOpRecord(), 0))
    return Decision(() if request.validate_only else tuple(records), reply, kraft_version=upgrade)


def one_feature_failed(reason: str) -> str:
    """Return what is told of an update of which one feature is refused."""
    return f"The update failed for all features since the following feature had an error: {reason}"


def _check(
    image: ClusterImage,
    update: FeatureUpdateKey,
    context: ControllerContext,
    version: int,
    current: int,
) -> None:
    """Refuse a change of level that is not allowed, with INVALID_UPDATE_VERSION."""
    name, level = update.feature, update.max_version_level
    upgrade_type = update.upgrade_type
    if version == 0 and update.allow_downgrade:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE
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
    if name == KRAFT_VERSION and level < current:
        raise _invalid(name, level, "Can't downgrade the version of this feature.")
    if name == METADATA_VERSION and level < current and changes_records(level, current):
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}: it might delete "
            "metadata.",
        )


def _check_dependencies(update: FeatureUpdateKey, proposed: Mapping[str, int]) -> None:
    name, level = update.feature, update.max_version_level
    if name == ELR_VERSION and level > 0 and not supports_elr(proposed.get(METADATA_VERSION, 0)):
        raise _invalid(name, level, f"It depends on {METADATA_VERSION} level {ELR_LEVEL}.")


def _update(
    image: ClusterImage, update: FeatureUpdateKey, context: ControllerContext
) -> list[VersionedRecord]:
    name, level = update.feature, update.max_version_level
    record = VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)
    if name == ELR_VERSION and level > image.features.get(name, 0):
        return [*_minimum_for_all(image, context), record]
    return [record]


def _minimum_for_all(image: ClusterImage, context: ControllerContext) -> list[VersionedRecord]:
    """Give all controllers the same minimum of in-sync replicas, on which eligibility depends.

    So it is in the log for the whole cluster, and no broker has one of its own, as in Kafka.
    """
    records = []
    if MIN_INSYNC_REPLICAS not in image.cluster_config():
        records.append(min_insync_replicas_record(context))
    for broker_id in sorted({*image.brokers, context.node_id}):
        if MIN_INSYNC_REPLICAS in image.broker_config(broker_id):
            gone = ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name=str(broker_id),
                name=MIN_INSYNC_REPLICAS,
                value=None,
            )
            records.append(VersionedRecord(gone, 0))
    return records


def _check_supported(
    image: ClusterImage, name: str, level: int, context: ControllerContext
) -> None:
    """Refuse a level that this controller, a broker or another controller does not support."""
    supporters = [
        (f"Local controller {context.node_id}", TOLERATED_FEATURES.get(name, _UNKNOWN_FEATURE))
    ]
    supporters += [
        (f"Broker {broker.id}", broker.features.get(name, _UNKNOWN_FEATURE))
        for broker in image.brokers.values()
    ]
    registered = set()
    if supports_controller_registration(image.metadata_version or 0):
        registered = {context.node_id, *image.controllers}
        supporters += [
            (f"Controller {one.controller_id}", _range_of(one, name))
            for one in image.controllers.values()
            if one.controller_id != context.node_id
        ]
    for who, versions in supporters:
        if not versions.covers(level):
            if versions.highest == 0:
                raise _invalid(name, level, f"{who} does not support this feature.")
            raise _invalid(name, level, f"{who} only supports versions {versions}")
    missing = sorted(context.static_voters - registered) if registered else []
    if missing:
        raise _invalid(
            name,
            level,
            f"controller {missing[0]} has not registered, and may not support this feature",
        )


def _range_of(controller: RegisterControllerRecord, name: str) -> VersionRange:
    for each in controller.features:
        if each.name == name:
            return VersionRange(each.min_supported_version, each.max_supported_version)
    return _UNKNOWN_FEATURE


def _invalid(name: str, level: int, message: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {name}. {message}",
    )
