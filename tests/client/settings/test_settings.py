"""Settings as users write them: words, Kafka's names, and slips."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dohle.client.cluster import Cluster
from dohle.client.config import (
    ClientConfig,
    ConsumerConfig,
    GroupProtocol,
    IsolationLevel,
    OffsetReset,
    ProducerConfig,
)
from dohle.client.settings.names import given
from dohle.records.compression.codecs import Codec

HERE = "127.0.0.1:9092"


def producer_settings(where: Any, **more: Any) -> ProducerConfig:
    config = given(where, None, ProducerConfig, more).config
    assert isinstance(config, ProducerConfig)
    return config


@pytest.mark.parametrize(
    ("name", "word", "meant"),
    [
        ("codec", "gzip", Codec.GZIP),
        ("codec", "ZSTD", Codec.ZSTD),
        ("codec", 3, Codec.LZ4),
        ("acks", "all", -1),
        ("linger_ms", "20", 20),
        ("linger_ms", 20.0, 20),
        ("transactional_id", "t", "t"),
        ("transactional_id", None, None),
        ("allow_auto_create_topics", "false", False),
    ],
)
def test_a_word_for_a_value_is_understood(name: str, word: Any, meant: Any) -> None:
    value = getattr(ProducerConfig(**{name: word}), name)
    assert value == meant
    assert type(value) is type(meant)


def test_words_of_consumers_are_understood() -> None:
    config = ConsumerConfig(
        isolation_level="read_committed",  # type: ignore[arg-type]
        auto_offset_reset="smallest",  # type: ignore[arg-type]
        partition_assignment_strategy="roundrobin, range",  # type: ignore[arg-type]
    )
    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.auto_offset_reset is OffsetReset.EARLIEST
    assert config.partition_assignment_strategy == ("roundrobin", "range")


def test_the_protocol_of_groups_is_named_as_kafka_names_it() -> None:
    where = {"bootstrap.servers": HERE, "group.protocol": "consumer"}
    settings = where | {"group.id": "g", "group.remote.assignor": "range"}
    config = given(settings, None, ConsumerConfig, {}).config
    assert config.group_protocol is GroupProtocol.CONSUMER
    assert config.group_remote_assignor == "range"
    with pytest.raises(ValueError, match=r"did you mean group\.remote\.assignor"):
        given(where | {"group.remote.asignor": "range"}, None, ConsumerConfig, {})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"group_protocol": "new"}, "group_protocol is 'new': choose from classic, consumer"),
        ({"group_remote_assignor": "range"}, "group_remote_assignor needs group_protocol=consumer"),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 9000},
            "session_timeout_ms has no effect with group_protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "heartbeat_interval_ms": 1000},
            "heartbeat_interval_ms has no effect with group_protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "partition_assignment_strategy has no effect with group_protocol=consumer",
        ),
    ],
)
def test_what_belongs_to_the_other_protocol_of_groups_is_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ConsumerConfig(**settings)


def test_assignors_may_be_named_as_javas_classes_are() -> None:
    package = "org.apache.kafka.clients.consumer"
    config = ConsumerConfig(
        partition_assignment_strategy=(
            f"{package}.RangeAssignor",
            f"{package}.RoundRobinAssignor",
            f"{package}.StickyAssignor",
            f"{package}.CooperativeStickyAssignor",
        )
    )
    assert config.partition_assignment_strategy == (
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
    )


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("codec", "brotli", "codec is 'brotli': choose from none, gzip, snappy, lz4, zstd"),
        ("linger_ms", "soon", "linger_ms is 'soon': it must be a whole number"),
        ("linger_ms", None, "linger_ms is None: it must be a whole number"),
        ("linger_ms", True, "linger_ms is True: it must be a whole number"),
        ("linger_ms", 0.5, "linger_ms is 0.5: it must be a whole number"),
        ("enable_idempotence", "maybe", "enable_idempotence is 'maybe': it must be True or False"),
        ("transactional_id", 7, "transactional_id is 7: it must be a string"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_a_sentence(
    name: str, value: Any, sentence: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        ProducerConfig(**{name: value})


def test_a_dict_for_librdkafka_is_understood() -> None:
    found = given(
        {
            "bootstrap.servers": HERE,
            "client.id": "shop",
            "acks": "all",
            "compression.codec": "lz4",
            "queue.buffering.max.ms": 7,
            "message.timeout.ms": 5000,
            "max.in.flight": 1,
            "socket.timeout.ms": 9000,
        },
        None,
        ProducerConfig,
        {},
    )
    assert found.is_own
    assert found.cluster.config == ClientConfig(client_id="shop", request_timeout_ms=9000)
    assert found.config == ProducerConfig(
        codec=Codec.LZ4, linger_ms=7, delivery_timeout_ms=5000, max_in_flight_requests=1
    )


def test_settings_may_be_named_beside_the_address() -> None:
    assert producer_settings(HERE, codec="zstd", linger_ms=1) == ProducerConfig(
        codec=Codec.ZSTD, linger_ms=1
    )


def test_a_misspelt_name_is_refused_and_the_right_one_told() -> None:
    with pytest.raises(
        ValueError, match=r"unknown setting linger\.msec: did you mean linger\.ms\?"
    ):
        producer_settings({"bootstrap.servers": HERE, "linger.msec": 5})
    with pytest.raises(ValueError, match=r"unknown setting compresion: did you mean compression"):
        producer_settings(HERE, compresion="gzip")
    with pytest.raises(ValueError, match=r"unknown setting zzz$"):
        producer_settings(HERE, zzz=1)
    with pytest.raises(ValueError, match=r"unknown setting compression_typ: .*compression_type\?"):
        producer_settings(HERE, compression_typ="gzip")
    with pytest.raises(ValueError, match=r"unknown setting ssl\.ca\.locaton: .*ssl\.ca\.location"):
        producer_settings({"bootstrap.servers": HERE, "ssl.ca.locaton": "ca.pem"})
    with pytest.raises(ValueError, match=r"unknown setting sasl_mechansim: .*sasl_mechanism\?"):
        producer_settings(HERE, sasl_mechansim="PLAIN")


def test_every_name_may_be_an_argument_with_underscores() -> None:
    found = given(
        None,
        None,
        ProducerConfig,
        {
            "bootstrap_servers": HERE,
            "compression_type": "gzip",
            "queue_buffering_max_ms": 7,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "alice-secret",
        },
    )
    assert found.config == ProducerConfig(codec=Codec.GZIP, linger_ms=7)
    assert found.cluster.config.security.account is not None


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("compression.type", "brotli", r"^compression\.type is 'brotli': choose from none, gzip"),
        ("linger.ms", "soon", r"^linger\.ms is 'soon': it must be a whole number$"),
        ("acks", "most", r"^acks is 'most': it must be 0, 1 or -1 \(all\)$"),
        ("retries", "many", r"^retries is 'many': it must be a whole number$"),
        ("on_delivery", print, r"^on_delivery is not a setting here: send_soon returns a future"),
        ("key.serializer", "x", r"^key\.serializer is not a setting here: give key_serializer="),
    ],
)
def test_a_wrong_value_is_told_by_the_name_that_it_was_given_under(
    name: str, value: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        producer_settings({"bootstrap.servers": HERE, name: value})


def test_the_classic_protocol_of_groups_may_be_named() -> None:
    found = given(
        {"bootstrap.servers": HERE, "group.id": "g", "group.protocol": "classic"},
        None,
        ConsumerConfig,
        {},
    )
    assert found.config == ConsumerConfig(group_id="g")


def test_what_only_librdkafka_knows_is_told_and_what_belongs_to_other_clients_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "dohle.client"):
        producer_settings(
            {"bootstrap.servers": HERE, "queued.min.messages": 1, "group.id": "billing"}
        )
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "queued.min.messages has no effect: it is internal to librdkafka"),
        ("INFO", "group.id has no effect on a client of this kind"),
    ]


def test_no_brokers_and_settings_given_twice_are_refused() -> None:
    with pytest.raises(TypeError, match="bootstrap servers are 5: they must be a string"):
        producer_settings(5)
    with pytest.raises(ValueError, match="brokers are named twice"):
        producer_settings(HERE, bootstrap_servers=HERE)
    with pytest.raises(ValueError, match="bootstrap_servers: belongs to the Cluster"):
        given(Cluster(HERE), None, ProducerConfig, {"bootstrap_servers": HERE})
    with pytest.raises(ValueError, match="no brokers are named"):
        producer_settings({"linger.ms": 5})
    with pytest.raises(ValueError, match="linger_ms: is given beside a ProducerConfig"):
        given(HERE, ProducerConfig(), ProducerConfig, {"linger_ms": 1})
    with pytest.raises(ValueError, match="client_id: belongs to the Cluster that was given"):
        given(Cluster(HERE), None, ProducerConfig, {"client_id": "x"})
    with pytest.raises(TypeError, match="config is a ConsumerConfig: it must be a ProducerConfig"):
        given(HERE, ConsumerConfig(), ProducerConfig, {})  # type: ignore[type-var]
