import pytest

from dohle.core.ids import BrokerId
from dohle.metadata.decision import KraftUpgrade
from dohle.metadata.features import (
    TOLERATED_FEATURES,
    registration_features,
    unsupported_features,
    update_features,
)
from dohle.metadata.producer_ids import allocate_producer_ids
from dohle.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.metadata.cluster import Cluster, cluster, registration

METADATA_VERSION = "metadata.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def at_level(level: int) -> Cluster:
    made = Cluster()
    made.bootstrap(level)
    made.start_broker()
    return made


def update(
    made: Cluster, level: int, upgrade_type: int = UPGRADE, name: str = METADATA_VERSION
) -> tuple[int, str | None]:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    request = UpdateFeaturesRequest(feature_updates=(key,))
    reply = made.commit(update_features(made.image, request, made.context, version=2))
    assert reply.results == ()
    return reply.error_code, reply.error_message


def test_the_metadata_version_is_upgraded() -> None:
    made = at_level(20)
    assert update(made, 29) == (0, None)
    assert made.image.metadata_version == 29
    assert made.delta.changed_features[0][1:] == (20, 29)


def test_a_downgrade_must_be_asked_for_and_lose_nothing() -> None:
    """A22."""
    made = at_level(29)
    assert update(made, 24, UPGRADE)[0] == 95
    assert update(made, 24, SAFE) == (0, None)
    assert made.image.metadata_version == 24
    code, message = update(made, 22, SAFE)
    assert code == 95
    assert "downgrade from 24 to 22" in (message or "")
    assert update(made, 22, UNSAFE)[0] == 95
    assert update(made, 23, SAFE) == (0, None)


@pytest.mark.parametrize(
    ("level", "upgrade_type", "name", "message"),
    [
        (30, UPGRADE, METADATA_VERSION, "Local controller 1 only supports versions 7-29"),
        (6, SAFE, METADATA_VERSION, "only supports versions 7-29"),
        (-1, UPGRADE, METADATA_VERSION, "cannot be less than 0"),
        (29, 0, METADATA_VERSION, "is not an upgrade type"),
        (29, SAFE, METADATA_VERSION, "Can't downgrade to a newer version"),
        (2, UPGRADE, "share.version", "only supports versions 0-1"),
        (1, UPGRADE, "no.such.version", "does not support this feature"),
        (2, UPGRADE, "kraft.version", "only supports versions 0-1"),
    ],
)
def test_what_is_refused(level: int, upgrade_type: int, name: str, message: str) -> None:
    made = at_level(28)
    code, text = update(made, level, upgrade_type, name)
    assert code == 95
    assert message in (text or "")
    assert made.image.metadata_version == 28


def test_kraft_version_may_stay_what_it_is() -> None:
    made = at_level(29)
    before = made.image
    assert update(made, 0, UPGRADE, "kraft.version") == (0, None)
    assert made.image is before


@pytest.mark.parametrize("upgrade_type", [UPGRADE, SAFE, UNSAFE])
def test_kraft_version_goes_up_and_never_down(upgrade_type: int) -> None:
    made = at_level(29)
    key = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=UPGRADE)
    request = UpdateFeaturesRequest(feature_updates=(key,))
    raised = update_features(made.image, request, made.context, version=2)
    # It is the quorum that writes it, as control records; whether that is committed, only a record
    # behind them tells (R112).
    assert raised.kraft_version == KraftUpgrade(1, validate_only=False)
    assert [each.record for each in raised.records] == [NoOpRecord()]
    asked = request.replace(validate_only=True)
    only_asked = update_features(made.image, asked, made.context, version=2)
    assert only_asked.kraft_version == KraftUpgrade(1, validate_only=True)
    assert only_asked.records == ()
    same = update_features(made.image, request, made.context, version=2, kraft_version=1)
    assert (same.kraft_version, same.reply.error_code) == (None, 0)
    lower = key.replace(max_version_level=0, upgrade_type=upgrade_type)
    request = UpdateFeaturesRequest(feature_updates=(lower,))
    refused = update_features(made.image, request, made.context, version=2, kraft_version=1)
    assert (refused.kraft_version, refused.reply.error_code) == (None, 95)


def test_eligible_leader_replicas_make_one_minimum_for_all() -> None:
    """A22."""
    made = cluster(elr=False)
    made.replay(
        ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="2")
    )
    assert update(made, 1, UPGRADE, "eligible.leader.replicas.version") == (0, None)
    assert made.image.cluster_config() == {"min.insync.replicas": "1"}
    assert made.image.broker_config(1) == {}


def test_a_feature_that_kafka_finalized_can_be_switched_off() -> None:
    made = at_level(29)
    features = made.image.features
    made.replay(FeatureLevelRecord(name="share.version", feature_level=1))
    assert update(made, 0, SAFE, "share.version") == (0, None)
    assert made.image.features == features


def test_the_transaction_version_is_lowered_and_raised() -> None:
    made = at_level(29)
    assert update(made, 1, SAFE, "transaction.version") == (0, None)
    assert made.image.features["transaction.version"] == 1
    assert update(made, 2, UPGRADE, "transaction.version") == (0, None)
    code, message = update(made, 3, UPGRADE, "transaction.version")
    assert code == 95
    assert "only supports versions 0-2" in (message or "")


def test_a_broker_that_is_too_old_stops_an_upgrade() -> None:
    """A22."""
    made = at_level(20)
    old = tuple(
        each.replace(max_supported_version=21) if each.name == METADATA_VERSION else each
        for each in registration().features
    )
    made.register(registration(2).replace(features=old))
    code, message = update(made, 29)
    assert code == 95
    assert "Broker 2 only supports versions 7-21" in (message or "")
    assert update(made, 21) == (0, None)


def test_all_updates_of_a_request_are_done_or_none() -> None:
    made = at_level(20)
    request = UpdateFeaturesRequest(
        feature_updates=(
            FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=29),
            FeatureUpdateKey(feature="no.such.version", max_version_level=1),
        )
    )
    reply = made.commit(update_features(made.image, request, made.context, version=2))
    assert reply.error_code == 95
    assert made.image.metadata_version == 20


def test_validate_only_changes_nothing_and_old_versions_get_results() -> None:
    made = at_level(20)
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=29)
    request = UpdateFeaturesRequest(feature_updates=(key,), validate_only=True)
    decision = update_features(made.image, request, made.context, version=1)
    assert decision.records == ()
    assert [each.feature for each in decision.reply.results] == [METADATA_VERSION]


def test_version_0_allows_downgrades_by_a_flag() -> None:
    made = at_level(29)
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=28, allow_downgrade=True)
    request = UpdateFeaturesRequest(feature_updates=(key,))
    made.commit(update_features(made.image, request, made.context, version=0))
    assert made.image.metadata_version == 28


def test_a_log_of_kafkas_own_features_is_tolerated_and_one_of_the_future_is_not() -> None:
    """A21, A24."""
    made = at_level(29)
    made.replay(
        FeatureLevelRecord(name="streams.version", feature_level=1),
        FeatureLevelRecord(name="share.version", feature_level=1),
    )
    assert unsupported_features(made.image) == []
    names = {each.name for each in registration_features()}
    assert names == TOLERATED_FEATURES.keys()
    made.replay(FeatureLevelRecord(name="share.version", feature_level=2))
    made.replay(FeatureLevelRecord(name="new.version", feature_level=1))
    assert unsupported_features(made.image) == [
        "new.version is finalized at level 1, but this node supports only 0",
        "share.version is finalized at level 2, but this node supports only 0-1",
    ]


def test_producer_ids_are_given_by_the_thousand() -> None:
    made = cluster()
    epoch = made.image.brokers[BrokerId(1)].epoch
    request = AllocateProducerIdsRequest(broker_id=BrokerId(1), broker_epoch=epoch)
    for start in (0, 1000, 2000):
        reply = made.commit(allocate_producer_ids(made.image, request))
        assert (reply.producer_id_start, reply.producer_id_len) == (start, 1000)
        assert made.delta.next_producer_id == made.image.next_producer_id == start + 1000
    assert made.batches[-1] == [
        ProducerIdsRecord(broker_id=BrokerId(1), broker_epoch=epoch, next_producer_id=3000)
    ]


def test_producer_ids_go_only_to_registered_brokers_and_end_some_day() -> None:
    made = cluster()
    stranger = AllocateProducerIdsRequest(broker_id=BrokerId(1), broker_epoch=999)
    decision = allocate_producer_ids(made.image, stranger)
    assert (decision.reply.error_code, decision.records) == (77, ())
    made.replay(ProducerIdsRecord(next_producer_id=2**63 - 1000))
    epoch = made.image.brokers[BrokerId(1)].epoch
    last = AllocateProducerIdsRequest(broker_id=BrokerId(1), broker_epoch=epoch)
    assert allocate_producer_ids(made.image, last).reply.error_code == -1
