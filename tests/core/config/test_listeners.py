from __future__ import annotations

import pytest

from dohle.core.config.listeners import (
    Listener,
    QuorumVoter,
    SecurityProtocol,
    parse_bootstrap_servers,
    parse_protocol_map,
    parse_voters,
)
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError

_PLAINTEXT = SecurityProtocol.PLAINTEXT


def _config(pairs: dict[str, str]) -> BrokerConfig:
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **pairs})
    return config


def _refusal(pairs: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as caught:
        _config(pairs)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    message: str = caught.value.args[0]
    return message


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("PLAINTEXT://:9092", "", 9092, "PLAINTEXT://:9092"),
        ("plaintext://localhost:0", "localhost", 0, "PLAINTEXT://localhost:0"),
        ("PLAINTEXT://10.0.0.1:65535", "10.0.0.1", 65535, "PLAINTEXT://10.0.0.1:65535"),
        ("PLAINTEXT://[::1]:9092", "::1", 9092, "PLAINTEXT://[::1]:9092"),
        ("PLAINTEXT://[fe80::1%eth0]:1", "fe80::1%eth0", 1, "PLAINTEXT://[fe80::1%eth0]:1"),
    ],
)
def test_a_listener_is_read_and_shown(text: str, host: str, port: int, shown: str) -> None:
    (listener,) = _config({"listeners": text}).listeners
    assert listener == Listener("PLAINTEXT", host, port, _PLAINTEXT)
    assert str(listener) == shown


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:",
        "PLAINTEXT://localhost:x",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://localhost:65536",
        "PLAINTEXT://local host:9092",
        "PLAINTEXT://localhost/:9092",
        "://localhost:9092",
    ],
)
@pytest.mark.parametrize("config", ["listeners", "advertised.listeners"])
def test_what_is_no_listener_is_refused_with_the_form(config: str, text: str) -> None:
    message = _refusal({config: text})
    assert text in message
    assert config in message
    assert "it should be in the form name://host:port" in message


def test_listeners_have_names_of_their_own() -> None:
    config = _config(
        {
            "listeners": "INTERNAL://:1,external://:2,CTL://:3",
            "listener.security.protocol.map": "internal:plaintext, EXTERNAL:PLAINTEXT,"
            "CTL:PLAINTEXT,",
            "inter.broker.listener.name": "internal",
            "controller.listener.names": "ctl",
            "advertised.listeners": "EXTERNAL://example.org:9,INTERNAL://a:9",
        }
    )
    assert [one.name for one in config.broker_listeners] == ["INTERNAL", "EXTERNAL"]
    assert [one.name for one in config.controller_listeners] == ["CTL"]
    assert list(map(str, config.advertised_listeners)) == [
        "EXTERNAL://example.org:9",
        "INTERNAL://a:9",
    ]
    assert list(map(str, config.placement.advertised_controller_listeners)) == ["CTL://:3"]
    assert config.placement.inter_broker_listener_name == "INTERNAL"


def test_a_controller_listener_is_plaintext_where_no_map_is_given() -> None:
    config = _config({"listeners": "PLAINTEXT://:1,CTL://:2", "controller.listener.names": "CTL"})
    assert config.controller_listeners == (Listener("CTL", "", 2, _PLAINTEXT),)


def test_a_controller_listener_is_not_plaintext_by_itself_where_others_are_secured() -> None:
    pairs = {"listeners": "SSL://:1,CTL://:2", "controller.listener.names": "CTL"}
    assert "No security protocol defined for listener CTL" in _refusal(pairs)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"listeners": "A://:1"}, "No security protocol defined for listener A"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://b:2"}, "must have a different name"),
        ({"listeners": "PLAINTEXT://a:1,SSL://b:1"}, "must have a different port"),
        ({"listeners": "PLAINTEXT://1.2.3.4:1,SSL://5.6.7.8:1"}, "must have a different port"),
        ({"listeners": "PLAINTEXT://[::1]:1,SSL://:1"}, "must have a different port"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:TLS"},
            "Invalid security protocol `TLS` defined in listener.security.protocol.map, it must "
            "be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT"},
            "Error parsing configuration property 'listener.security.protocol.map': 'PLAINTEXT' "
            "is not of the form name:protocol",
        ),
        ({"listener.security.protocol.map": ""}, "No security protocol defined for listener"),
        (
            {"controller.listener.names": "CTL"},
            "controller.listener.names must only contain values appearing in the 'listeners'",
        ),
        (
            {"controller.listener.names": "PLAINTEXT"},
            "There must be at least one broker advertised listener.",
        ),
        (
            {"advertised.listeners": "SSL://a:1"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are SSL, and it is "
            "PLAINTEXT",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://a:1,SSL://a:2"},
            "advertised.listeners listener names must be equal to or a subset of the ones "
            "defined in listeners. Found PLAINTEXT,SSL. The valid options based on the current "
            "configuration are PLAINTEXT",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0",
        ),
    ],
)
def test_listeners_that_do_not_fit_are_refused(pairs: dict[str, str], message: str) -> None:
    assert message in _refusal(pairs)


def test_listening_everywhere_needs_an_address_for_clients() -> None:
    config = _config(
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://a:9092"}
    )
    assert config.advertised_listeners == (Listener("PLAINTEXT", "a", 9092, _PLAINTEXT),)


@pytest.mark.parametrize(
    "listeners",
    [
        "PLAINTEXT://127.0.0.1:9092,B://[::1]:9092",
        "PLAINTEXT://a:0,B://a:0",
    ],
)
def test_ports_may_be_shared_by_two_kinds_of_addresses_or_be_left_open(listeners: str) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"
    config = _config({"listeners": listeners, "listener.security.protocol.map": protocols})
    assert len(config.listeners) == 2


def test_two_advertised_listeners_may_share_a_port() -> None:
    config = _config(
        {
            "listeners": "PLAINTEXT://:1,B://:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://a:9092,B://b:9092",
        }
    )
    assert [one.port for one in config.advertised_listeners] == [9092, 9092]


def test_the_quorum_is_read() -> None:
    assert parse_voters(["1@a:9093", "2@[::1]:9094"]) == (
        QuorumVoter(1, "a", 9093),
        QuorumVoter(2, "::1", 9094),
    )
    assert parse_bootstrap_servers(["a:9093", "[::1]:1"]) == (("a", 9093), ("::1", 1))


@pytest.mark.parametrize("entry", ["", "a:9093", "x@a:9093", "1@a", "1@:9093", "-1@a:1", "1@a:b"])
def test_what_is_no_voter_is_refused(entry: str) -> None:
    with pytest.raises(KafkaError, match=r"should be in the form `\{id\}@\{host\}:\{port\}`"):
        parse_voters([entry])


@pytest.mark.parametrize("entry", ["", "a", ":9093", "a:b", "a:65536"])
def test_what_is_no_bootstrap_server_is_refused(entry: str) -> None:
    with pytest.raises(KafkaError, match=r"should be in the form `\{host\}:\{port\}`"):
        parse_bootstrap_servers([entry])


def test_protocols_have_the_numbers_of_a_registration() -> None:
    text = "A:PLAINTEXT,B:SSL,C:SASL_PLAINTEXT,D:SASL_SSL"
    assert parse_protocol_map(text) == {"A": 0, "B": 1, "C": 2, "D": 3}
