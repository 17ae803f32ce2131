"""The tables of configs, compared with those of Apache Kafka 4.2.1.

``kafka_configs.txt`` is what Kafka says of itself (``tests/jvm/java/ConfigTables.java``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dohle.core.config.broker import BROKER_CONFIGS, DYNAMIC_ONLY
from dohle.core.config.client_metrics import CLIENT_METRICS_CONFIGS
from dohle.core.config.definition import ConfigKey, ConfigType, UpdateMode
from dohle.core.config.group import GROUP_CONFIGS
from dohle.core.config.topic import TOPIC_CONFIGS

_TABLES: dict[str, Mapping[str, ConfigKey]] = {
    "broker": BROKER_CONFIGS,
    "topic": TOPIC_CONFIGS,
    "group": GROUP_CONFIGS,
    "client-metrics": CLIENT_METRICS_CONFIGS,
}
#: Configs that Kafka does not have.
_ONLY_OURS = {
    "connections.login.max",
    "connections.login.timeout.ms",
    "metrics.listener",
    "metrics.per.partition",
}
#: Where our rows differ from Kafka's on purpose: all fields but kind and name.
_OURS = {
    # A node that is alone needs no listener for its controller.
    "controller.listener.names": "LIST | || read-only | listed",
    # These protocols are not served.
    "group.coordinator.rebalance.protocols": "LIST | classic,consumer | "
    "[classic, consumer, share, streams] | read-only | listed",
    # Sockets are opened at the start.
    "listener.security.protocol.map": "STRING | "
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT || "
    "read-only | listed",
    "listeners": "LIST | PLAINTEXT://:9092 || read-only | listed",
    # Limits that Kafka has elsewhere in its code.
    "controller.quorum.bootstrap.servers": "LIST | || read-only | listed",
    "controller.quorum.voters": "LIST | || read-only | listed",
    "group.consumer.assignors": "LIST | uniform,range | [uniform, range] | read-only | listed",
    "group.consumer.migration.policy": "STRING | bidirectional | "
    "[bidirectional, disabled, downgrade, upgrade] | read-only | listed",
    "offsets.topic.compression.codec": "INT | 0 | [0,...,4] | read-only | listed",
    "request.timeout.ms": "INT | 30000 | [1,...] | read-only | listed",
    "share.auto.offset.reset": "STRING | latest || cluster-wide | listed",
    "sasl.oauthbearer.assertion.algorithm": "STRING | RS256 | [ES256, RS256] | read-only | listed",
    "authorizer.class.name": "STRING | || read-only | listed",
    # Classes of Java are not loaded: these two are built in.
    "replica.selector.class": "STRING | null | "
    "[org.apache.kafka.common.replica.RackAwareReplicaSelector, "
    "org.apache.kafka.common.replica.LeaderSelector] | read-only | listed",
}


def _kafka() -> dict[tuple[str, str], str]:
    rows = {}
    for line in Path(__file__).with_name("kafka_configs.txt").read_text().splitlines():
        kind, name, rest = (part.strip() for part in line.split("|", 2))
        rows[kind, name] = _plain(rest)
    return rows


def _plain(row: str) -> str:
    return "|".join(part.strip() for part in row.split("|"))


def _row(key: ConfigKey) -> str:
    default = "null" if key.default is None else key.default_text
    listed = "internal" if key.is_internal else "listed"
    limits = "" if key.validator is None else str(key.validator)
    return f"{key.type.name}|{default}|{limits}|{key.update_mode.value}|{listed}"


_ALL = [
    (kind, key)
    for kind, table in _TABLES.items()
    for key in table.values()
    if key.name not in _ONLY_OURS
]
_KAFKA = _kafka()


def test_the_tables_have_the_configs_of_kafka() -> None:
    assert {(kind, key.name) for kind, key in _ALL if key.name not in DYNAMIC_ONLY} == set(_KAFKA)


def test_the_configs_have_the_types_defaults_and_limits_of_kafka() -> None:
    ours = {(kind, key.name): _row(key) for kind, key in _ALL if key.name not in DYNAMIC_ONLY}
    differing = {one[1]: row for one, row in ours.items() if row != _KAFKA[one]}
    assert differing == {name: _plain(row) for name, row in _OURS.items()}


def test_a_topic_falls_back_to_broker_configs_that_are_in_the_table() -> None:
    for key in TOPIC_CONFIGS.values():
        assert set(key.synonyms) <= BROKER_CONFIGS.keys()


def test_what_topics_fall_back_to_first_can_be_altered_and_the_other_units_cannot() -> None:
    for key in TOPIC_CONFIGS.values():
        if key.synonyms:
            first, *others = (BROKER_CONFIGS[name] for name in key.synonyms)
            assert first.update_mode is UpdateMode.CLUSTER_WIDE
            assert all(other.update_mode is UpdateMode.READ_ONLY for other in others)


def test_every_config_says_what_it_does_or_why_it_does_nothing() -> None:
    for _, key in _ALL:
        if key.doc or not key.no_effect:
            assert key.doc[:1].isupper(), key
            assert key.doc.endswith("."), key
        assert not key.no_effect.endswith("."), key


def test_a_default_is_a_value_that_could_be_given() -> None:
    for _, key in _ALL:
        if key.default_text:
            assert key.parse(key.default_text) == key.default


def test_passwords_are_hidden_and_nothing_else() -> None:
    hidden = {key.type for _, key in _ALL if key.is_sensitive}
    shown = {key.type for _, key in _ALL if not key.is_sensitive}
    assert hidden == {ConfigType.PASSWORD}
    assert ConfigType.PASSWORD not in shown
