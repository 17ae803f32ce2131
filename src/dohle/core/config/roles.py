"""The roles of a node (``process.roles``), and what each asks of addresses and of the quorum.

A node is a broker, a controller, or both. The checks and their texts are Kafka's, with one
exception: a node that is both, and alone, needs neither a controller listener nor the configs of
the quorum.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from dohle.core.config.definition import ConfigValues
from dohle.core.config.listeners import (
    NON_ROUTABLE_HOST,
    Listener,
    QuorumVoter,
    SecurityProtocol,
    check_distinct_ports,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from dohle.core.errors import ErrorCode, KafkaError

_NAMES: Final = "controller.listener.names"
_VOTERS: Final = "controller.quorum.voters"
_SERVERS: Final = "controller.quorum.bootstrap.servers"
_PROTOCOLS: Final = "listener.security.protocol.map"


class Role(Enum):
    """What a node can be."""

    BROKER = "broker"
    CONTROLLER = "controller"


class Placement(NamedTuple):
    """The roles of a node, its addresses, and where the quorum is."""

    roles: frozenset[Role]
    #: All listeners, including the controller's.
    listeners: tuple[Listener, ...]
    #: What clients are told. An empty host or port 0 stands for the one that the listener gets.
    advertised_listeners: tuple[Listener, ...]
    #: Where other nodes reach the controller, in the order of ``controller_listener_names``.
    advertised_controller_listeners: tuple[Listener, ...]
    #: By the first of them nodes reach controllers (R4).
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    #: How brokers, and all nodes with controllers, talk to each other.
    inter_broker_protocol: SecurityProtocol
    controller_protocol: SecurityProtocol
    #: The members of a quorum that cannot change; none if they are in the metadata log.
    voters: tuple[QuorumVoter, ...]
    #: Where to ask for the leader of the quorum, as host and port.
    bootstrap_servers: tuple[tuple[str, int], ...]

    @property
    def is_broker(self) -> bool:
        """Whether it holds records of topics."""
        return Role.BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it may vote in the quorum, and decide."""
        return Role.CONTROLLER in self.roles

    @property
    def is_alone(self) -> bool:
        """Whether it is told of no other controller than itself."""
        return self.is_controller and max(len(self.voters), len(set(self.bootstrap_servers))) <= 1

    @property
    def quorum_text(self) -> str:
        """Where the controllers are, for an operator."""
        if self.bootstrap_servers or not self.voters:
            return ", ".join(f"{host}:{port}" for host, port in self.bootstrap_servers)
        return ", ".join(f"{one.id}@{one.host}:{one.port}" for one in self.voters)


def place(node_id: int, values: ConfigValues, texts: Mapping[str, str]) -> Placement:
    """Parse and check all that depends on the roles; INVALID_CONFIG says what is wrong."""
    protocols = _protocols(values, explicit=_PROTOCOLS in texts)
    listeners = parse_listeners(values.get_list("listeners"), protocols, "listeners")
    check_distinct_ports(listeners)
    names = tuple(map(str.upper, values.get_list(_NAMES)))
    if values["advertised.listeners"] is None:
        advertised = listeners
    else:
        advertised = parse_listeners(
            values.get_list("advertised.listeners"), protocols, "advertised.listeners"
        )
    of_controller = {
        one.name: one for each in (listeners, advertised) for one in each if one.name in names
    }
    inter_broker = _inter_broker_listener(values, texts)
    placement = Placement(
        roles=frozenset(map(Role, values.get_list("process.roles"))),
        listeners=listeners,
        advertised_listeners=tuple(one for one in advertised if one.name not in names),
        advertised_controller_listeners=tuple(
            of_controller[name] for name in names if name in of_controller
        ),
        controller_listener_names=names,
        inter_broker_listener_name=inter_broker,
        inter_broker_protocol=protocols.get(inter_broker, SecurityProtocol.PLAINTEXT),
        controller_protocol=protocols.get(names[0] if names else "", SecurityProtocol.PLAINTEXT),
        voters=parse_voters(values.get_list(_VOTERS)),
        bootstrap_servers=parse_bootstrap_servers(values.get_list(_SERVERS)),
    )
    if placement.is_controller:
        _check_controller(node_id, placement)
    else:
        _check_broker_alone(node_id, placement, protocols)
        if values.get_bool("controller.quorum.auto.join.enable"):
            raise _refusal(
                "controller.quorum.auto.join.enable is only supported when process.roles contains "
                "the 'controller' role."
            )
    if placement.is_broker:
        _check_broker(placement)
    _refuse_non_routable(placement)
    return placement


def _protocols(values: ConfigValues, *, explicit: bool) -> dict[str, SecurityProtocol]:
    """Return the protocol of each listener name; the default map may lack controller listeners."""
    protocols = parse_protocol_map(values.get_str(_PROTOCOLS))
    names = [entry.partition(":")[0].upper() for entry in values.get_list("listeners")]
    controllers = [name.upper() for name in values.get_list(_NAMES)]
    secured = {protocol.name for protocol in SecurityProtocol} - {"PLAINTEXT"}
    if not explicit and secured.isdisjoint((*names, *controllers)):
        for name in controllers:
            protocols[name] = SecurityProtocol.PLAINTEXT
    return protocols


def _inter_broker_listener(values: ConfigValues, texts: Mapping[str, str]) -> str:
    name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if values[name] and protocol in texts:
        raise _refusal(f"Only one of {name} and {protocol} should be set.")
    return str(values[name] or values[protocol]).upper()


def _check_quorum_is_known(placement: Placement) -> None:
    if not placement.voters and not placement.bootstrap_servers:
        raise _refusal(
            f"If using process.roles, either {_SERVERS} must contain the set of bootstrap "
            f"controllers or {_VOTERS} must contain a parseable set of controllers."
        )


def _check_controller(node_id: int, placement: Placement) -> None:
    names = {one.name for one in placement.listeners}
    is_single = placement.is_broker and placement.is_alone
    if not is_single:
        _check_quorum_is_known(placement)
    if not placement.is_broker and len(placement.advertised_controller_listeners) != len(names):
        raise _refusal(
            "The listeners config must only contain KRaft controller listeners from "
            f"{_NAMES} when process.roles=controller"
        )
    if placement.voters and node_id not in {voter.id for voter in placement.voters}:
        raise _refusal(
            f"If process.roles contains the 'controller' role, the node id {node_id} must be "
            f"included in the set of voters {_shown(placement.voters)}"
        )
    if not placement.advertised_controller_listeners and not is_single:
        raise _refusal(
            f"{_NAMES} must contain at least one value appearing in the 'listeners' configuration "
            "when running the KRaft controller role"
        )
    if not names.issuperset(placement.controller_listener_names):
        raise _refusal(
            f"{_NAMES} must only contain values appearing in the 'listeners' configuration when "
            "running the KRaft controller role"
        )


def _check_broker_alone(
    node_id: int, placement: Placement, protocols: Mapping[str, SecurityProtocol]
) -> None:
    _check_quorum_is_known(placement)
    if node_id in {voter.id for voter in placement.voters}:
        raise _refusal(
            f"If process.roles contains just the 'broker' role, the node id {node_id} must not be "
            f"included in the set of voters {_shown(placement.voters)}"
        )
    if not placement.controller_listener_names:
        raise _refusal(
            f"{_NAMES} must contain at least one value when running KRaft with just the broker role"
        )
    if {one.name for one in placement.listeners} & set(placement.controller_listener_names):
        raise _refusal(
            f"{_NAMES} must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role"
        )
    for name in placement.controller_listener_names:
        if name not in protocols:
            raise _refusal(
                f"Controller listener with name {name} defined in {_NAMES} not found in "
                f"{_PROTOCOLS}  (an explicit security mapping for each controller listener is "
                f"required if {_PROTOCOLS} is non-empty, or if there are security protocols other "
                "than PLAINTEXT in use)"
            )


def _check_broker(placement: Placement) -> None:
    names = {one.name for one in placement.listeners}
    advertised = [one.name for one in placement.advertised_listeners]
    if not advertised:
        raise _refusal(
            "There must be at least one broker advertised listener. Perhaps all listeners appear "
            f"in {_NAMES}?"
        )
    if placement.inter_broker_listener_name not in advertised:
        raise _refusal(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are "
            f"{','.join(advertised)}, and it is {placement.inter_broker_listener_name}"
        )
    if not names.issuperset(advertised):
        raise _refusal(
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {','.join(advertised)}. The valid options based on the current "
            f"configuration are {','.join(sorted(names))}"
        )


def _refuse_non_routable(placement: Placement) -> None:
    advertised = placement.advertised_listeners
    if not placement.is_alone:
        # Nobody is told the address of a controller that is alone, but tools on its own machine.
        advertised += placement.advertised_controller_listeners
    for one in advertised:
        if one.host == NON_ROUTABLE_HOST:
            raise _refusal(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0, as clients "
                f"would be told {one}. Use a routable IP address."
            )


def _shown(voters: tuple[QuorumVoter, ...]) -> str:
    return f"{_VOTERS}=Set({', '.join(str(voter.id) for voter in voters)})"


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
