from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.config.definition import ConfigValue
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.config.topic import (
    TOPIC_CONFIGS,
    effective_topic_config,
    validate_topic_overrides,
)
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
    values = effective_topic_config({"delete.retention.ms": "1"}, _broker())
    assert values == effective_topic_config({}, _broker())


def test_an_override_with_a_broken_value_is_refused() -> None:
    with pytest.raises(KafkaError, match="Invalid value 0 for configuration"):
        effective_topic_config({"segment.ms": "0"}, _broker())


def test_overrides_are_valid_if_every_name_and_value_is() -> None:
    validate_topic_overrides({})
    validate_topic_overrides({"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    validate_topic_overrides({"cleanup.policy": ""})


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
    ],
)
def test_overrides_are_refused_for_a_name_or_a_value(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_overrides(pairs)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.args == (message,)


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_CONFIGS)), st.text("0123456789-,adelt")))
def test_overrides_that_are_valid_take_effect(pairs: dict[str, str]) -> None:
    try:
        validate_topic_overrides(pairs)
    except KafkaError:
        return
    values = effective_topic_config(pairs, _broker())
    for name, text in pairs.items():
        assert values[name] == TOPIC_CONFIGS[name].parse(text)
