"""Which roles a node may have with which addresses: Kafka's rules, and what is not done yet."""

from __future__ import annotations

import pytest

from dohle.core.config.listeners import QuorumVoter
from dohle.core.config.roles import Role
from dohle.core.config.static import SINGLE_NODE, BrokerConfig, NoticeLevel
from dohle.core.errors import ErrorCode, KafkaError

_MAP = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)
#: What the example files of Apache Kafka 4.2 have in common.
_COMMON = {
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": _MAP,
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
#: As in its controller.properties and broker.properties.
_CONTROLLER = {
    **_COMMON,
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://:9093",
    "advertised.listeners": "CONTROLLER://localhost:9093",
    "log.dirs": "/tmp/kraft-controller-logs",
}
_BROKER = {
    **_COMMON,
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://localhost:9092",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/tmp/kraft-broker-logs",
}
_BOTH = {
    **_COMMON,
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


def _config(pairs: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties(pairs)[0]


def _refusal(pairs: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as refused:
        _config(pairs)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return str(refused.value.args[0])


def test_kafkas_example_of_a_controller_is_accepted() -> None:
    config = _config(_CONTROLLER)
    placement = config.placement
    assert placement.roles == {Role.CONTROLLER}
    assert (placement.is_controller, placement.is_broker, placement.is_alone) == (True, False, True)
    assert [str(one) for one in config.controller_listeners] == ["CONTROLLER://:9093"]
    assert config.broker_listeners == ()
    assert [str(one) for one in placement.advertised_controller_listeners] == [
        "CONTROLLER://localhost:9093"
    ]
    assert placement.bootstrap_servers == (("localhost", 9093),)


def test_kafkas_example_of_a_broker_is_accepted() -> None:
    config = _config(_BROKER)
    placement = config.placement
    assert placement.roles == {Role.BROKER}
    assert (placement.is_controller, placement.is_broker, placement.is_alone) == (
        False,
        True,
        False,
    )
    assert config.controller_listeners == ()
    assert placement.controller_listener_names == ("CONTROLLER",)


def test_a_node_of_both_roles_that_is_alone_needs_no_quorum_and_no_controller_listener() -> None:
    for pairs in ({}, {"controller.quorum.voters": "1@localhost:9093"}):
        placement = _config({**SINGLE_NODE, **pairs}).placement
        assert placement.is_alone


def test_the_first_controller_listener_is_the_default_one() -> None:
    """R4: the default listener is the first of ``controller.listener.names``."""
    listeners = "A://:1,B://:2,PLAINTEXT://:3"
    names = {"controller.listener.names": "b,A", "listeners": listeners}
    more = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    placement = _config({**_BOTH, **names, **more}).placement
    assert placement.controller_listener_names == ("B", "A")
    assert [one.port for one in placement.advertised_controller_listeners] == [2, 1]


def test_static_voters_are_told() -> None:
    placement = _config({**_BOTH, "controller.quorum.voters": "1@a:9093,2@b:9094"}).placement
    assert placement.voters == (QuorumVoter(1, "a", 9093), QuorumVoter(2, "b", 9094))
    assert not placement.is_alone


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            {**_BROKER, "controller.quorum.bootstrap.servers": ""},
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the "
            "set of bootstrap controllers or controller.quorum.voters must contain a parseable set "
            "of controllers.",
        ),
        (
            {**_CONTROLLER, "controller.quorum.bootstrap.servers": ""},
            "If using process.roles, either controller.quorum.bootstrap.servers must contain",
        ),
        (
            {**_BROKER, "controller.quorum.voters": "2@a:1,3@b:1"},
            "If process.roles contains just the 'broker' role, the node id 2 must not be included "
            "in the set of voters controller.quorum.voters=Set(2, 3)",
        ),
        (
            {key: text for key, text in _BROKER.items() if key != "controller.listener.names"},
            "controller.listener.names must contain at least one value when running KRaft with "
            "just the broker role",
        ),
        (
            {**_BROKER, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "controller.listener.names must not contain a value appearing in the 'listeners' "
            "configuration when running KRaft with just the broker role",
        ),
        (
            {**_BROKER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "Controller listener with name CONTROLLER defined in controller.listener.names not "
            "found in listener.security.protocol.map",
        ),
        (
            {**_BROKER, "controller.quorum.auto.join.enable": "true"},
            "controller.quorum.auto.join.enable is only supported when process.roles contains the "
            "'controller' role.",
        ),
        (
            {**_CONTROLLER, "listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"},
            "The listeners config must only contain KRaft controller listeners from "
            "controller.listener.names when process.roles=controller",
        ),
        (
            {**_BOTH, "controller.quorum.voters": "2@b:9093"},
            "If process.roles contains the 'controller' role, the node id 1 must be included in "
            "the set of voters controller.quorum.voters=Set(2)",
        ),
        (
            {**_BOTH, "controller.listener.names": "ELSEWHERE", "advertised.listeners": "X://a:1"},
            "Error creating broker listeners from 'X://a:1' in advertised.listeners",
        ),
        (
            {**SINGLE_NODE, "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093"},
            "controller.listener.names must contain at least one value appearing in the "
            "'listeners' configuration when running the KRaft controller role",
        ),
        (
            {**_BOTH, "controller.listener.names": "CONTROLLER,SSL"},
            "controller.listener.names must only contain values appearing in the 'listeners' "
            "configuration when running the KRaft controller role",
        ),
        (
            {**_BOTH, "controller.quorum.voters": "1@0.0.0.0:9093"},
            "Host string (0.0.0.0) is not routeable",
        ),
        (
            {
                **_BOTH,
                "controller.quorum.voters": "1@a:9093,2@b:9093",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093",
            },
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0",
        ),
    ],
)
def test_addresses_and_a_quorum_that_do_not_fit_the_roles_are_refused(
    pairs: dict[str, str], message: str
) -> None:
    assert _refusal(pairs).startswith(message)


def test_only_the_first_controller_listener_of_a_broker_counts() -> None:
    pairs = {**_BROKER, "controller.listener.names": "CONTROLLER,SSL"}
    _, notices = BrokerConfig.from_properties(pairs)
    (warning,) = (one for one in notices if one.level is NoticeLevel.WARNING)
    assert warning.message == (
        "controller.listener.names has multiple entries; only the first will be used since "
        "process.roles=broker: CONTROLLER, SSL"
    )
