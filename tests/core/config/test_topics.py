from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.config.definition import ConfigValue
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.config.topic import TOPIC_CONFIGS, effective_topic_config
from dohle.core.config.topic_rules import validate_topic_overrides
from dohle.core.errors import ErrorCode, KafkaError


def _broker(pairs: Mapping[str, str] | None = None) -> BrokerConfig:
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **(pairs or {})})
    return config


def test_a_topic_without_overrides_has_the_defaults() -> None:
    values = effective_topic_config({}, _broker())
    assert values == {name: key.default for name, key in TOPIC_CONFIGS.items()}
    assert list(map(type, values.values())) == [type(k.default) for k in TOPIC_CONFIGS.values()]


@pytest.mark.parametrize(
    ("static", "name", "value"),
    [
        ({"log.segment.bytes": "2097152"}, "segment.bytes", 2_097_152),
        ({"log.preallocate": "true"}, "preallocate", True),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", ("compact", "delete")),
        ({"message.max.bytes": "10"}, "max.message.bytes", 10),
        ({"log.retention.hours": "2"}, "retention.ms", 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, "retention.ms", 180_000),
        ({"log.retention.ms": "4", "log.retention.minutes": "3"}, "retention.ms", 4),
        ({"log.retention.hours": "-1"}, "retention.ms", -1),
        ({"log.retention.ms": "-7"}, "retention.ms", -1),
        ({"log.roll.hours": "1"}, "segment.ms", 3_600_000),
        ({"log.roll.ms": "5", "log.roll.hours": "1"}, "segment.ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", 9),
        (
            {"log.flush.interval.ms": "8", "log.flush.scheduler.interval.ms": "9"},
            "flush.ms",
            8,
        ),
    ],
)
def test_a_topic_takes_what_it_lacks_from_the_broker(
    static: dict[str, str], name: str, value: ConfigValue
) -> None:
    values = effective_topic_config({}, _broker(static))
    assert values[name] == value
    assert type(values[name]) is type(value)
    assert {k: v for k, v in values.items() if k != name} == {
        k: key.default for k, key in TOPIC_CONFIGS.items() if k != name
    }


def test_the_nearer_level_wins() -> None:
    levels = [
        ("retention.ms", "1"),
        ("log.retention.ms", "2"),
        ("log.retention.ms", "3"),
        ("log.retention.ms", "4"),
    ]
    for used in range(1, 16):
        topic, dynamic, default, static = (
            dict([pair]) if used & 1 << level else {} for level, pair in enumerate(levels)
        )
        values = effective_topic_config(topic, _broker(static), dynamic, default)
        nearest = (used & -used).bit_length()
        assert values["retention.ms"] == nearest


def test_a_dynamic_config_in_milliseconds_goes_before_a_static_one_in_hours() -> None:
    broker = _broker({"log.roll.hours": "1"})
    assert effective_topic_config({}, broker, {}, {"log.roll.ms": "7"})["segment.ms"] == 7


def test_a_dynamic_value_of_a_config_that_cannot_be_altered_is_passed_over() -> None:
    values = effective_topic_config({}, _broker(), {"log.roll.hours": "1"}, {})
    assert values["segment.ms"] == 604_800_000


def test_overrides_that_only_kafka_knows_are_passed_over() -> None:
    values = effective_topic_config({"of.another.release": "1"}, _broker())
    assert values == effective_topic_config({}, _broker())


def test_an_override_with_a_broken_value_is_refused() -> None:
    with pytest.raises(KafkaError, match="Invalid value 0 for configuration"):
        effective_topic_config({"segment.ms": "0"}, _broker())


def test_overrides_are_valid_if_every_name_and_value_is() -> None:
    validate_topic_overrides({}, _broker())
    validate_topic_overrides({"cleanup.policy": "compact,delete", "retention.ms": "-1"}, _broker())
    validate_topic_overrides({"cleanup.policy": ""}, _broker())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("unclean.leader.election.enable", "true"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:1, 12:3"),
        ("leader.replication.throttled.replicas", ""),
        ("local.retention.ms", "1000"),
        ("remote.storage.enable", "false"),
        ("remote.log.copy.disable", "true"),
        ("internal.segment.bytes", "14"),
    ],
)
def test_what_has_no_effect_yet_is_accepted(name: str, text: str) -> None:
    validate_topic_overrides({name: text}, _broker())


def test_remote_storage_is_for_a_broker_that_was_told_to_have_it() -> None:
    tiers = _broker({"remote.log.storage.system.enable": "true"})
    on = {"remote.storage.enable": "true"}
    validate_topic_overrides(on, tiers)
    validate_topic_overrides({**on, "retention.ms": "-1", "local.retention.ms": "-1"}, tiers)
    off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    validate_topic_overrides(off, tiers, before=on)
    for pairs, before, reason in (
        (
            {**on, "cleanup.policy": "compact"},
            {},
            "only supports topics with cleanup.policy=delete",
        ),
        ({**on, "local.retention.ms": "-1"}, {}, "Value must not be -1 as retention.ms value"),
        (
            {**on, "retention.bytes": "5", "local.retention.bytes": "6"},
            {},
            "Value must not be more than retention.bytes property value: 5",
        ),
        (
            {**on, "remote.log.copy.disable": "true", "local.retention.ms": "5"},
            {},
            "must be set to the identical value",
        ),
        ({}, on, "It is invalid to disable remote storage without deleting remote data"),
    ):
        with pytest.raises(KafkaError, match=reason):
            validate_topic_overrides(pairs, tiers, before)


def test_the_least_and_the_most_time_until_compaction_count_the_broker_too() -> None:
    broker = _broker({"log.cleaner.max.compaction.lag.ms": "10"})
    validate_topic_overrides({"min.compaction.lag.ms": "10"}, broker)
    with pytest.raises(KafkaError, match=r"min.compaction.lag.ms \(11\) > .*lag.ms \(10\)"):
        validate_topic_overrides({"min.compaction.lag.ms": "11"}, broker)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"retention.ms": "x", "foo": "1"}, "Unknown topic config name: foo"),
        ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"compression.type": "none"},
            "Invalid value none for configuration compression.type: String must be one of: "
            "uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            {"cleanup.policy": "delete,delete"},
            "Configuration 'cleanup.policy' values must not be duplicated.",
        ),
        (
            {"min.cleanable.dirty.ratio": "1.5"},
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: "
            "Value must be no more than 1",
        ),
        (
            {"leader.replication.throttled.replicas": "0:1,x"},
            "Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas "
            "in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage.",
        ),
    ],
)
def test_overrides_are_refused_for_a_name_or_a_value(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_overrides(pairs, _broker())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.args == (message,)


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_CONFIGS)), st.text("0123456789-,adelt")))
def test_overrides_that_are_valid_take_effect(pairs: dict[str, str]) -> None:
    try:
        validate_topic_overrides(pairs, _broker())
    except KafkaError:
        return
    values = effective_topic_config(pairs, _broker())
    for name, text in pairs.items():
        assert values[name] == TOPIC_CONFIGS[name].parse(text)
