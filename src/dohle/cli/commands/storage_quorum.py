"""How the quorum of a new node is to begin: what ``dohle storage format`` is told of it.

The voters are in the configuration of every node (``controller.quorum.voters``, ``kraft.version``
0), or in the metadata log (``kraft.version`` 1, KIP-853). In the second case the first of them are
known when the nodes are formatted (``--standalone``, ``--initial-controllers``), or the node asks
controllers that are there already (``--no-initial-controllers``). The rules and texts are Kafka's,
with one exception: a node that is told nothing of a quorum is one by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.cli.errors import CliError
from dohle.core.config.roles import Placement
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import system_rng
from dohle.core.uuid import random_uuid, uuid_from_text
from dohle.raft.membership import Voter, VoterEndpoint

_FLAGS = "--standalone, --initial-controllers, or --no-initial-controllers"
_LISTENER_DEFAULT = "CONTROLLER"
_PORT_MAX = 65535


class QuorumPlan(NamedTuple):
    """How the quorum begins, as far as this node is concerned."""

    #: Whether the voters are in the metadata log.
    is_dynamic: bool
    #: The first of them, if they are known.
    initial_voters: tuple[Voter, ...] = ()

    def check_kraft_version(self, chosen: int | None) -> None:
        """Refuse a level that says something else."""
        if chosen == 0 and self.is_dynamic:
            raise CliError(
                "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the "
                f"flags {_FLAGS} is used. For dynamic controllers support, try removing the "
                "--feature flag for kraft.version."
            )
        if chosen and not self.is_dynamic:
            raise CliError(
                f"Cannot set kraft.version to {chosen} unless controller.quorum.voters is empty "
                f"and one of the flags {_FLAGS} is used. For dynamic controllers support, try "
                f"using one of {_FLAGS} and removing controller.quorum.voters."
            )


class AskedFor(NamedTuple):
    """What the options say; no more than one of them is given."""

    standalone: bool
    initial_controllers: str | None
    no_initial_controllers: bool

    @property
    def is_given(self) -> bool:
        """Whether there is any of them."""
        return any(self)


def plan_quorum(asked: AskedFor, node_id: BrokerId, placement: Placement | None) -> QuorumPlan:
    """Return how the quorum begins; without a file, the node is alone."""
    if placement is None:
        has_voters, is_controller, is_told_of_quorum = False, True, False
    else:
        has_voters, is_controller = bool(placement.voters), placement.is_controller
        is_told_of_quorum = bool(placement.bootstrap_servers)
    if has_voters and (asked.standalone or asked.initial_controllers is not None):
        raise CliError(
            "You cannot specify controller.quorum.voters and format the node with "
            "--initial-controllers or --standalone. If you want to use dynamic quorum, please "
            "remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
            "instead."
        )
    if asked.standalone:
        if not is_controller:
            raise CliError("You can only use --standalone on a controller.")
        return QuorumPlan(True, (_standalone_voter(node_id, placement),))
    if asked.initial_controllers is not None:
        return QuorumPlan(True, parse_voters(asked.initial_controllers, _listener_name(placement)))
    if is_controller and is_told_of_quorum and not has_voters and not asked.is_given:
        raise CliError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            f"of the following: {_FLAGS}."
        )
    return QuorumPlan(not has_voters and (asked.is_given or not is_controller))


def _listener_name(placement: Placement | None) -> str:
    names = () if placement is None else placement.controller_listener_names
    return names[0] if names else _LISTENER_DEFAULT


def _standalone_voter(node_id: BrokerId, placement: Placement | None) -> Voter:
    """Return this node as the only voter, with its first controller listener if it has any.

    The node completes the entry when it leads.
    """
    first = () if placement is None else placement.advertised_controller_listeners[:1]
    endpoints = tuple(VoterEndpoint(one.name, one.host or "localhost", one.port) for one in first)
    return Voter(node_id, random_uuid(system_rng()), endpoints)


def parse_voters(text: str, listener: str) -> tuple[Voter, ...]:
    """Parse ``id@host:port:directory,...``, in the order of their ids."""
    voters: dict[BrokerId, Voter] = {}
    for entry in filter(str.strip, text.split(",")):
        try:
            voter = parse_voter(entry.strip(), listener)
        except ValueError as error:
            raise CliError(f"--initial-controllers {entry.strip()}: {error}") from None
        if voter.id in voters:
            raise CliError(f"Node id {voter.id} was specified more than once.")
        voters[voter.id] = voter
    if not voters:
        raise CliError("No voters given.")
    return tuple(voters[each] for each in sorted(voters))


def parse_voter(text: str, listener: str) -> Voter:
    """Parse ``id@host:port:directory``; a ValueError says what is wrong."""
    number, at, rest = text.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if not (number.isascii() and number.isdigit()):
        raise ValueError("Failed to parse node id in dynamic voter string.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise ValueError("Hostname began with left bracket, but no right bracket was found.")
        if not rest.startswith(":"):
            raise ValueError("Port section must start with a colon.")
        rest = rest[1:]
    else:
        host, colon, rest = rest.partition(":")
        if not colon:
            raise ValueError("No colon following hostname could be found.")
    if not host:
        raise ValueError("No hostname found after node id.")
    port, colon, directory = rest.partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    if not (port.isascii() and port.isdigit()):
        raise ValueError("Failed to parse port in dynamic voter string.")
    if int(port) > _PORT_MAX:
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    endpoint = VoterEndpoint(listener, host, int(port))
    return Voter(BrokerId(int(number)), _directory_id(directory), (endpoint,))


def _directory_id(text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise ValueError(f"Failed to parse directory ID in dynamic voter string: {error}") from None
