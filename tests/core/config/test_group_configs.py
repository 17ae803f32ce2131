import pytest

from dohle.core.config.describe import ConfigSource, describe_group
from dohle.core.config.group import validate_group_overrides
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"


def broker(**texts: str) -> BrokerConfig:
    properties = {name.replace("_", "."): text for name, text in texts.items()}
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **properties})
    return config


@pytest.mark.parametrize(
    "pairs",
    [
        {},
        {SESSION: "45000"},
        {SESSION: "60000", HEARTBEAT: "15000"},
        {HEARTBEAT: " 5000 "},
    ],
)
def test_what_a_group_may_have(pairs: dict[str, str]) -> None:
    validate_group_overrides(pairs, broker())


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ({"retention.ms": "1"}, "no group config retention.ms"),
        ({SESSION: "abc"}, SESSION),
        ({SESSION: "0"}, SESSION),
        ({SESSION: "44999"}, "group.consumer.min.session.timeout.ms is 45000"),
        ({SESSION: "60001"}, "group.consumer.max.session.timeout.ms is 60000"),
        ({HEARTBEAT: "4999"}, "group.consumer.min.heartbeat.interval.ms is 5000"),
        ({HEARTBEAT: "15001"}, "group.consumer.max.heartbeat.interval.ms is 15000"),
    ],
)
def test_what_a_group_may_not_have(pairs: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        validate_group_overrides(pairs, broker())
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert reason in str(refusal.value)


def test_a_session_has_to_be_longer_than_the_interval_of_heartbeats() -> None:
    config = broker(group_consumer_min_session_timeout_ms="1")
    validate_group_overrides({SESSION: "5001"}, config)
    with pytest.raises(KafkaError, match="greater than"):
        validate_group_overrides({SESSION: "5000"}, config)
    with pytest.raises(KafkaError, match="greater than"):
        validate_group_overrides({SESSION: "7000", HEARTBEAT: "8000"}, config)


def test_what_is_not_given_counts_as_the_broker_has_it() -> None:
    config = broker(
        group_consumer_min_session_timeout_ms="3000",
        group_consumer_session_timeout_ms="3000",
        group_consumer_min_heartbeat_interval_ms="100",
        group_consumer_heartbeat_interval_ms="100",
    )
    validate_group_overrides({SESSION: "4000"}, config)
    with pytest.raises(KafkaError, match="greater than"):
        validate_group_overrides({HEARTBEAT: "3000"}, config)


def test_a_group_without_configs_has_what_its_broker_has() -> None:
    config = broker(group_consumer_heartbeat_interval_ms="6000")
    described = {one.name: one for one in describe_group({SESSION: "50000"}, config)}
    session, heartbeat = described[SESSION], described[HEARTBEAT]
    assert (session.name, session.value) == (SESSION, "50000")
    assert session.source is ConfigSource.GROUP_CONFIG
    assert (heartbeat.name, heartbeat.value) == (HEARTBEAT, "6000")
    assert heartbeat.source is ConfigSource.DEFAULT_CONFIG
    assert [one.name for one in describe_group({}, config, [HEARTBEAT])] == [HEARTBEAT]


@pytest.mark.parametrize(
    "pairs",
    [
        {"share.auto.offset.reset": "earliest"},
        {"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
        {"share.record.lock.duration.ms": "15000"},
        {"share.isolation.level": "read_committed"},
        {"streams.num.standby.replicas": "2"},
        {"streams.initial.rebalance.delay.ms": "0"},
    ],
)
def test_configs_of_groups_that_are_not_served_are_kept(pairs: dict[str, str]) -> None:
    validate_group_overrides(pairs, broker())


@pytest.mark.parametrize(
    "pairs",
    [
        {"share.auto.offset.reset": "Earliest"},
        {"share.auto.offset.reset": "by_duration:P"},
        {"share.auto.offset.reset": "by_duration:-PT1S"},
        {"share.record.lock.duration.ms": "14999"},
        {"share.isolation.level": "none"},
        {"share.heartbeat.interval.ms": "4999"},
        {"streams.num.standby.replicas": "3"},
        {"streams.session.timeout.ms": "60001"},
    ],
)
def test_configs_of_groups_that_are_not_served_are_checked(pairs: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_group_overrides(pairs, broker())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
