from __future__ import annotations

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigType
from dohle.core.config.describe import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.config.topic import TOPIC_CONFIGS

_TOPIC = ConfigSource.TOPIC_CONFIG
_DYNAMIC = ConfigSource.DYNAMIC_BROKER_CONFIG
_DYNAMIC_DEFAULT = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
_STATIC = ConfigSource.STATIC_BROKER_CONFIG
_DEFAULT = ConfigSource.DEFAULT_CONFIG


def _broker(pairs: dict[str, str] | None = None) -> BrokerConfig:
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **(pairs or {})})
    return config


def _topic_config(
    name: str,
    overrides: dict[str, str] | None = None,
    static: dict[str, str] | None = None,
    dynamic: dict[str, str] | None = None,
    default: dict[str, str] | None = None,
) -> DescribedConfig:
    (described,) = describe_topic(
        overrides or {}, _broker(static), dynamic or {}, default or {}, [name]
    )
    return described


def _broker_config(
    name: str,
    static: dict[str, str] | None = None,
    dynamic: dict[str, str] | None = None,
    default: dict[str, str] | None = None,
) -> DescribedConfig:
    (described,) = describe_broker(_broker(static), dynamic or {}, default or {}, [name])
    return described


def test_a_topic_is_described_with_all_its_configs() -> None:
    described = describe_topic({}, _broker(), {}, {})
    listed = [name for name, key in TOPIC_CONFIGS.items() if not key.is_internal]
    assert [one.name for one in described] == listed
    for one in described:
        key = TOPIC_CONFIGS[one.name]
        assert (one.value, one.type) == (key.default_text, key.type)
        assert one.documentation.endswith(key.doc)
        assert one.documentation.startswith("No effect in dohle: ") == bool(key.no_effect)
        assert one.is_default
        assert not one.read_only
        assert not one.is_sensitive


def test_a_topic_config_names_every_level_that_gives_it() -> None:
    described = _topic_config(
        "segment.bytes",
        {"segment.bytes": "2000000"},
        {"log.segment.bytes": "5000000"},
        {"log.segment.bytes": "3000000"},
        {"log.segment.bytes": "4000000"},
    )
    assert (described.value, described.source) == ("2000000", _TOPIC)
    assert described.synonyms == (
        ("segment.bytes", "2000000", _TOPIC),
        ("log.segment.bytes", "3000000", _DYNAMIC),
        ("log.segment.bytes", "4000000", _DYNAMIC_DEFAULT),
        ("log.segment.bytes", "5000000", _STATIC),
        ("log.segment.bytes", "1073741824", _DEFAULT),
    )
    assert not described.is_default


def test_the_source_is_the_nearest_level() -> None:
    static, dynamic = {"log.segment.bytes": "5000000"}, {"log.segment.bytes": "3000000"}
    for described, value, source in (
        (_topic_config("segment.bytes", static=static), "5000000", _STATIC),
        (_topic_config("segment.bytes", static=static, dynamic=dynamic), "3000000", _DYNAMIC),
        (_topic_config("segment.bytes", default=dynamic), "3000000", _DYNAMIC_DEFAULT),
    ):
        assert (described.value, described.source) == (value, source)


def test_a_value_given_only_in_another_unit_has_no_source_as_in_kafka() -> None:
    described = _topic_config("retention.ms", static={"log.retention.hours": "1"})
    assert (described.value, described.source) == ("3600000", _DEFAULT)
    assert described.synonyms == ()


def test_other_units_follow_the_main_name_in_the_order_they_count() -> None:
    static = {"log.retention.hours": "1", "log.retention.minutes": "2"}
    described = _topic_config("retention.ms", static=static, dynamic={"log.retention.ms": "3"})
    assert described.synonyms == (
        ("log.retention.ms", "3", _DYNAMIC),
        ("log.retention.minutes", "2", _STATIC),
        ("log.retention.hours", "1", _STATIC),
        ("log.retention.hours", "168", _DEFAULT),
    )


def test_a_topic_config_is_shown_in_kafkas_form() -> None:
    described = _topic_config("cleanup.policy", {"cleanup.policy": " compact , delete"})
    assert described.value == "compact,delete"
    assert described.type is ConfigType.LIST
    assert _topic_config("preallocate", {"preallocate": "TRUE"}).value == "true"


def test_a_broker_is_described_with_all_its_configs_but_the_internal_ones() -> None:
    described = describe_broker(_broker(), {}, {})
    shown = [key.name for key in BROKER_CONFIGS.values() if not key.is_internal]
    assert [one.name for one in described] == shown


def test_an_internal_config_is_shown_when_it_is_set() -> None:
    described = _broker_config("log.initial.task.delay.ms", {"log.initial.task.delay.ms": "1"})
    assert (described.value, described.source) == ("1", _STATIC)


def test_what_is_given_and_not_known_is_listed_without_its_value_as_in_kafka() -> None:
    described = _broker_config("colour", {"colour": "red"})
    assert (described.value, described.source) == (None, _STATIC)
    assert described.is_sensitive
    assert described.type is ConfigType.UNKNOWN
    (described,) = describe_cluster_default({"colour": "red"})
    assert (described.name, described.value) == ("colour", None)


def test_a_config_of_one_listener_is_told_as_what_it_is() -> None:
    name = "listener.name.internal.max.connections"
    described = _broker_config(name, {name: "5"})
    assert (described.type, described.synonyms[0].value) == (ConfigType.INT, "5")


def test_passwords_are_told_by_name_alone() -> None:
    described = _broker_config("ssl.key.password", {"ssl.key.password": "secret"})
    assert (described.value, described.is_sensitive) == (None, True)
    assert [one.value for one in described.synonyms] == [None]


def test_a_broker_config_names_every_level_that_gives_it() -> None:
    described = _broker_config(
        "max.connections",
        {"max.connections": "3"},
        {"max.connections": "1"},
        {"max.connections": "2"},
    )
    assert (described.value, described.source, described.read_only) == ("1", _DYNAMIC, False)
    assert described.synonyms == (
        ("max.connections", "1", _DYNAMIC),
        ("max.connections", "2", _DYNAMIC_DEFAULT),
        ("max.connections", "3", _STATIC),
        ("max.connections", "2147483647", _DEFAULT),
    )


def test_a_broker_config_that_needs_a_restart_is_read_only() -> None:
    described = _broker_config("node.id")
    assert (described.value, described.source, described.read_only) == ("1", _STATIC, True)
    assert described.synonyms == (("node.id", "1", _STATIC),)


def test_a_broker_config_that_is_not_set_has_no_value() -> None:
    described = _broker_config("log.retention.ms", {"log.retention.hours": "1"})
    assert (described.value, described.source, described.synonyms) == (None, _DEFAULT, ())


def test_a_broker_config_in_one_unit_names_only_what_counts_less() -> None:
    described = _broker_config(
        "log.retention.hours",
        {"log.retention.hours": "1", "log.retention.minutes": "2"},
        {"log.retention.ms": "3"},
    )
    assert (described.value, described.source) == ("1", _STATIC)
    assert described.synonyms == (
        ("log.retention.hours", "1", _STATIC),
        ("log.retention.hours", "168", _DEFAULT),
    )


def test_the_interval_of_the_flush_scheduler_stands_for_itself() -> None:
    pairs = {"log.flush.scheduler.interval.ms": "2", "log.flush.interval.ms": "1"}
    assert _broker_config("log.flush.scheduler.interval.ms", pairs).synonyms == (
        ("log.flush.scheduler.interval.ms", "2", _STATIC),
        ("log.flush.scheduler.interval.ms", str(2**63 - 1), _DEFAULT),
    )
    assert _broker_config("log.flush.interval.ms", pairs).synonyms == (
        ("log.flush.interval.ms", "1", _STATIC),
        ("log.flush.scheduler.interval.ms", "2", _STATIC),
        ("log.flush.scheduler.interval.ms", str(2**63 - 1), _DEFAULT),
    )


def test_the_defaults_of_all_brokers_are_described_as_far_as_they_are_set() -> None:
    default = {"max.connections": "2", "log.retention.ms": "5"}
    described = describe_cluster_default(default)
    assert [(one.name, one.value) for one in described] == [
        ("log.retention.ms", "5"),
        ("max.connections", "2"),
    ]
    for one in described:
        assert one.source is _DYNAMIC_DEFAULT
        assert one.synonyms == ((one.name, one.value, _DYNAMIC_DEFAULT),)
        assert not one.read_only
    assert describe_cluster_default({}) == []


def test_only_what_is_asked_for_and_known_is_described() -> None:
    broker = _broker()
    assert [one.name for one in describe_topic({}, broker, {}, {}, ["segment.ms", "x"])] == [
        "segment.ms"
    ]
    assert describe_broker(broker, {}, {}, ["x"]) == []
    assert describe_broker(broker, {}, {}, []) == describe_broker(broker, {}, {})
    assert describe_cluster_default({"max.connections": "2"}, ["node.id"]) == []
